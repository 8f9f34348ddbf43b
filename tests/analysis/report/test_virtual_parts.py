"""What a page shows of virtual clusters and forks: virtual lanes, lag by length, trees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.runs.timeline import PAUSED, LaneSpan
from rlhf_lab.runs.timeline_colours import PAUSED_LABEL
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report import timelines
from rlhf_lab_analysis.report.forks import fork_trees
from rlhf_lab_analysis.report.groups import Group, name_groups
from rlhf_lab_analysis.report.lag_by_length import lags_of_lengths
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.sources.record import Record, Row
from tests.support import table_records as made
from tests.support.report_pages import Texts, data_of
from tests.support.virtual_files import write_virtual_files

SWEPT = {"queue": ["in_order", "drop"], "tail": ["none"], "mode.max_staleness": ["1"]}


def chunk(round_: int, version: int, steps: int, dropped: bool = False) -> dict[str, Any]:
    segments = [[0, version]]
    return {
        "round": round_, "chunk": 0, "segments": segments, "dropped": dropped, "steps": steps
    }  # fmt: skip


def virtual_rounds() -> list[Row]:
    """Four rounds of a run on a virtual cluster, 30 virtual seconds each."""
    rounds = enumerate(made.rounds(4), start=1)
    return [{**row, "virtual_seconds/wall": 30.0 * number} for number, row in rounds]


def shown(folder: Path, *rows: dict[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Ranges of lengths, and the parts of their bars, of a run with this schedule."""
    write_rows(folder / "schedule.jsonl", rows)
    tables = made.tables(made.record(place=str(folder)))
    found = lags_of_lengths(name_groups(cells(tables, unjudged=True).cells), [0])
    return [
        (name, [(str(share.shade), share.percent) for share in shares])
        for one in found
        for name, shares in one.rows
    ]


def test_lags_are_counted_by_the_length_of_the_longest_response(tmp_path: Path) -> None:
    rows = [chunk(3, 3 - steps // 10, steps) for steps in (1, 2, 11, 12, 21)]
    rows += [chunk(3, 0, 30, dropped=True)] * 5
    # Ten chunks in ranges of two: at most 2, 12 and 30 tokens; 30 has all that is left.
    assert shown(tmp_path, *rows) == [
        ("1 to 2 tokens", [("0", 100)]),
        ("11 to 12 tokens", [("1", 100)]),
        ("21 to 30 tokens", [("2", 16.67), ("dropped", 83.33)]),
    ]


def test_large_lags_share_a_part(tmp_path: Path) -> None:
    rows = [chunk(9, version, 5) for version in (0, 1, 9, 9)]
    assert shown(tmp_path, *rows) == [("5 tokens", [("0", 50), ("6", 50)])]


def test_runs_whose_chunks_have_one_age_a_round_are_left_out(tmp_path: Path) -> None:
    # As mode=lagged has them: the first round is on-policy, all others are one round old.
    rows = [chunk(round_, max(0, round_ - 1), steps) for round_ in range(4) for steps in (3, 9)]
    assert shown(tmp_path, *rows) == []


def test_a_page_draws_virtual_lanes_in_their_own_unit(tmp_path: Path) -> None:
    write_virtual_files(tmp_path)
    record = made.record(place=str(tmp_path), rounds=virtual_rounds())
    found = Texts(html(made.tables(record), Options()))
    assert "by the clock of its virtual cluster" in found.text
    assert re.search(r"[\d.]+ virtual s; idle in the whole run: trainer \d+%", found.text)
    assert PAUSED_LABEL not in found.text
    assert "Lag by length" in found.text
    assert [held for tag, held in found.elements if held.get("class") == "lag lag-1"]


def test_a_page_draws_and_counts_pauses_of_colocated_generators(tmp_path: Path) -> None:
    write_virtual_files(tmp_path, is_colocated=True)
    record = made.record(place=str(tmp_path), rounds=virtual_rounds())
    found = Texts(html(made.tables(record), Options()))
    assert re.search(r"idle in the whole run: [^;]+; paused: generator-0 \d+%", found.text)
    assert PAUSED_LABEL in found.text


def test_of_many_generators_the_shortest_and_the_longest_pause_are_given() -> None:
    spans = [LaneSpan("trainer", "update", 0.0, 10.0, 0, 0)]
    spans += [LaneSpan(f"generator-{n}", PAUSED, n, 10.0, 0, 0) for n in range(5)]
    text = "idle in the whole run: trainer 0%, 5 generators 0% to 40%"
    assert timelines.shares_of_run(spans) == f"{text}; paused: 5 generators 60% to 100%"
    assert timelines.shares_of_run(spans[:1]) == "idle in the whole run: trainer 0%"


def forked(run: str, parent: str, score: float, round_: int = 2, changes: str = "") -> Record:
    fork = {"fork": {"parent": f"runs/{parent}", "round": round_}} if parent else {}
    names = {"fork_parent": parent, "fork_changes": changes} if parent else {}
    config = {**made.config(), **fork, **names}
    evals = made.evals((4,), {"gold/win_rate": score})
    return made.record(run, place=f"runs/{run}", config=config, evals=evals)


def family() -> list[Record]:
    return [
        forked("root", "", 0.5),
        forked("child", "root", 0.625, 2, "optim.lr=0.1"),
        forked("grandchild", "child", 0.5, 3),
        forked("alone", "", 0.5),
        forked("orphan", "elsewhere", 0.25, 1, "algo=ppo"),
    ]


def test_forks_stand_below_their_parents(tmp_path: Path) -> None:
    root, orphan = fork_trees(made.tables(*family()), "gold/win_rate")
    (child,) = root.forks
    (grandchild,) = child.forks
    assert (root.name, root.change) == ("root", "")
    assert (child.change, child.difference) == ("from round 2: optim.lr=0.1", 0.125)
    assert (grandchild.change, grandchild.difference) == ("from round 3: no change", -0.125)
    assert orphan.change == "from round 1: algo=ppo" and orphan.difference != orphan.difference
    assert not orphan.forks and not grandchild.forks


def test_a_page_shows_the_tree_of_forks(tmp_path: Path) -> None:
    found = Texts(html(made.tables(*family()), Options()))
    text = " ".join(found.text.split())
    assert "child from round 2: optim.lr=0.1 finished, gold win-rate 0.625 (+0.125 against" in text
    assert [held for tag, held in found.elements if held.get("id") == "forks"]
    alone = Texts(html(made.tables(forked("alone", "", 0.5)), Options()))
    assert not [held for tag, held in alone.elements if held.get("id") == "forks"]


def test_the_clock_of_a_virtual_cluster_is_an_axis_with_a_name_of_its_own() -> None:
    text = html(made.tables(made.record(rounds=virtual_rounds())), Options())
    axes = {one["id"]: one["label"] for one in data_of(text)["axes"]}
    assert axes["x/virtual_seconds"] == "wall-clock of the virtual cluster (virtual s)"
    row = Texts(text).row("grpo sync")
    assert "120" in row and "wall-clock, virtual s" in Texts(text).text
    assert "virtual s" not in Texts(html(made.tables(made.record()), Options())).text


def test_files_are_read_of_no_more_runs_than_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [made.record(f"r{n}", config=made.config(per_round=n)) for n in range(1, 13)]
    groups = name_groups(cells(made.tables(*records), unjudged=True).cells)
    read: list[str] = []
    span = LaneSpan("trainer", "update", 0.0, 1.0, 0, 0)

    def piece_of(group: Group) -> timelines.Piece:
        read.append(group.title)
        return timelines.Piece([span], (0, 0), "", "")

    monkeypatch.setattr(timelines, "piece_of", piece_of)
    (drawn,) = timelines.timelines(groups, range(len(groups)))
    assert len(groups) == 12 and len(drawn) == len(read) == timelines.MOST_RUNS
