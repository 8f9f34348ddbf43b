"""The lanes of a virtual cluster, from the files of a run of mode=virtual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.cli import timeline
from rlhf_lab.cli.timeline import figure, html
from rlhf_lab.rollout.cluster.options import WeightUpdate
from rlhf_lab.rollout.cluster.simulate import Simulation
from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.timeline import (
    VIRTUAL_SECONDS,
    LaneSpan,
    idle_shares,
    paused_shares,
    read_virtual_spans,
)
from rlhf_lab.runs.timeline_svg import PAUSED_LABEL
from rlhf_lab.runs.trackers.console import Console
from tests.support.virtual_files import CLUSTER, simulated, write_files


def spans_of(found: Simulation, folder: Path) -> list[LaneSpan]:
    """What is read of the files that a run with this course would have written."""
    write_files(found, folder)
    return read_virtual_spans(folder)


def drawn(spans: Sequence[LaneSpan], lane: str) -> list[tuple[str, float, float, int, int]]:
    return [
        (span.phase, round(span.start, 6), round(span.end, 6), span.round, span.version)
        for span in spans
        if span.lane == lane
    ]


def test_lanes_worked_by_hand(tmp_path: Path) -> None:
    spans = spans_of(simulated([4, 6, 5]), tmp_path)
    # Chunk 1 is begun by version 0 once chunk 0 is written; chunk 2 waits for version 1, at 15.
    assert drawn(spans, "generator-0") == [
        ("generate", 0, 4, 0, 0),
        ("generate", 4, 10, 1, 0),
        ("generate", 15, 20, 2, 1),
    ]
    assert drawn(spans, "trainer") == [
        ("take", 0, 4, 0, 0),
        ("update", 4, 14, 0, 0),
        ("sync", 14, 15, 0, 0),
        ("take", 15, 15, 1, 1),
        ("update", 15, 25, 1, 1),
        ("sync", 25, 26, 1, 1),
        ("take", 26, 26, 2, 2),
        ("update", 26, 36, 2, 2),
        ("sync", 36, 37, 2, 2),
    ]


def test_idle_shares_are_those_that_the_cluster_counted(tmp_path: Path) -> None:
    found = simulated([4, 6, 5, 25, 3, 7], replace(CLUSTER, generators=2), chunks=2)
    spans = spans_of(found, tmp_path)
    last = found.rounds[-1]
    seconds = last["virtual_seconds/wall"]
    shares = idle_shares(spans)
    assert shares.pop("trainer") == pytest.approx(last["virtual_seconds/wait"] / seconds)
    waited = sum(shares.values()) * seconds
    assert waited == pytest.approx(last["virtual_seconds/generator_wait"])


COLOCATED = replace(
    CLUSTER, generators=2, sequences=2, step_seconds_per_sequence=0.5, is_colocated=True
)


def colocated() -> Simulation:
    """Generator 0 writes chunks 0 and 1, a token of both in two seconds, and generator 1 writes
    chunk 2, a token in 1.5 seconds."""
    return simulated([2, 4, 2], COLOCATED, staleness=2)


def test_pauses_of_colocated_generators_worked_by_hand(tmp_path: Path) -> None:
    spans = spans_of(colocated(), tmp_path)
    # Round 0 trains on chunk 2 from 3 on, while generator 0 has begun a step that ends at 4; round
    # 1 trains at once on chunk 0. Chunk 1 has two tokens left, and is alone.
    assert drawn(spans, "generator-0") == [
        ("generate", 0, 4, 1, 0),
        ("generate", 0, 4, 2, 0),
        ("generate", 25, 28, 2, 0),
        ("paused", 4, 14, 0, 0),
        ("paused", 14, 25, 1, 1),
        ("paused", 28, 39, 2, 2),
    ]
    assert drawn(spans, "generator-1") == [
        ("generate", 0, 3, 0, 0),
        ("paused", 3, 14, 0, 0),
        ("paused", 14, 25, 1, 1),
        ("paused", 28, 39, 2, 2),
    ]
    # A chunk's parts lie in the same row, and a pause takes the whole lane.
    places = [(s.row, s.rows) for s in spans if s.lane == "generator-0"]
    assert places == [(0, 2), (1, 2), (1, 2), (0, 1), (0, 1), (0, 1)]
    shares = {"trainer": 6 / 39, "generator-0": 0, "generator-1": 3 / 39}
    assert idle_shares(spans) == pytest.approx(shares, abs=1e-9)
    assert paused_shares(spans) == pytest.approx({"generator-0": 32 / 39, "generator-1": 33 / 39})


@pytest.mark.parametrize("update", WeightUpdate)
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_idle_and_paused_time_is_that_of_no_work(
    tmp_path: Path, update: WeightUpdate, staleness: int
) -> None:
    options = replace(COLOCATED, weight_update=update, round_seconds=7.3)
    found = simulated([4, 6, 5, 25, 3, 7, 9, 2, 6, 4, 8, 3], options, staleness, chunks=4)
    spans, last = spans_of(found, tmp_path), found.rounds[-1]
    idle = sum(share for lane, share in idle_shares(spans).items() if lane != "trainer")
    paused = sum(paused_shares(spans).values())
    waited = last["virtual_seconds/generator_wait"] / last["virtual_seconds/wall"]
    assert idle + paused == pytest.approx(waited)
    # No pause is longer than the training of its round.
    trained = last["virtual_seconds/train"] + last["virtual_seconds/sync"]
    assert 0 < paused <= 2 * trained / last["virtual_seconds/wall"] + 1e-9


def test_pauses_are_drawn_and_counted_apart_from_idle_time(tmp_path: Path) -> None:
    spans = spans_of(colocated(), tmp_path)
    title = timeline.heading("run", spans, VIRTUAL_SECONDS)
    assert title == (
        "run: 39.0 virtual s of wall-clock; idle: trainer 15%, generator-0 0%, generator-1 8%; "
        "paused: generator-0 82%, generator-1 85%"
    )
    page = html(spans, title, unit=VIRTUAL_SECONDS)
    assert page.count("<title>paused\n") == 6 and PAUSED_LABEL in page
    texts = [text.get_text() for text in figure(spans, title).legends[0].get_texts()]
    assert PAUSED_LABEL in texts


def test_generators_with_devices_of_their_own_have_no_pauses(tmp_path: Path) -> None:
    spans = spans_of(simulated([2, 2, 4], replace(COLOCATED, is_colocated=False), 2), tmp_path)
    assert paused_shares(spans) == {}
    assert "paused" not in html(spans, timeline.heading("run", spans))


def test_chunks_at_the_same_time_lie_side_by_side(tmp_path: Path) -> None:
    found = simulated([4, 6, 2, 3], replace(CLUSTER, sequences=3), staleness=0, chunks=4)
    spans = [span for span in spans_of(found, tmp_path) if span.lane != "trainer"]
    # Chunk 3 begins at 2, where chunk 2 has ended.
    assert [(s.chunk, round(s.start, 6), round(s.end, 6), s.row) for s in spans] == [
        (0, 0, 4, 0), (1, 0, 6, 1), (2, 0, 2, 2), (3, 2, 5, 2)
    ]  # fmt: skip
    assert {span.rows for span in spans} == {3}


def test_a_chunk_has_a_span_for_each_version_that_wrote_it(tmp_path: Path) -> None:
    options = replace(CLUSTER, weight_update=WeightUpdate.in_flight)
    spans = spans_of(simulated([4, 30, 5], options), tmp_path)
    # Version 1 comes at 15, when a step has just begun (prompts are read in no time, but in some).
    assert drawn(spans, "generator-0")[1:3] == [
        ("generate", 4, 16, 1, 0),
        ("generate", 16, 34, 1, 1),
    ]


def test_a_run_without_a_virtual_cluster_has_no_virtual_lanes(tmp_path: Path) -> None:
    write_rows(tmp_path / "metrics.jsonl", [{"step": 0}])
    assert read_virtual_spans(tmp_path) == []


def test_both_clocks_are_drawn_under_their_own_names(tmp_path: Path) -> None:
    spans_of(simulated([4, 6, 5]), tmp_path)
    write_rows(
        tmp_path / "timeline.jsonl",
        [{"lane": "trainer", "phase": "update", "start": 0, "end": 1, "round": 0, "version": 0}],
    )
    timeline.TIMELINE.run([str(tmp_path)], Console(quiet=True))
    names = ["timeline.html", "timeline.png", "virtual_timeline.html", "virtual_timeline.png"]
    assert sorted(path.name for path in tmp_path.glob("*timeline.[hp]*")) == names
    assert f"{VIRTUAL_SECONDS} of wall-clock" in (tmp_path / names[2]).read_text()
    assert VIRTUAL_SECONDS not in (tmp_path / names[0]).read_text()


def test_rows_of_a_lane_share_its_height(tmp_path: Path) -> None:
    found = simulated([4, 6, 2, 3], replace(CLUSTER, sequences=3), staleness=0, chunks=4)
    page = html(spans_of(found, tmp_path), "run", unit=VIRTUAL_SECONDS)
    assert page.count('height="9.333"') == 4
    assert "2.000 virtual s" in page
