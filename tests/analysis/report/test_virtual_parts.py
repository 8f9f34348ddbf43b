"""What a page shows of virtual clusters: their lanes, their clock, their pauses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlhf_lab.runs.timeline import PAUSED, LaneSpan
from rlhf_lab.runs.timeline_svg import PAUSED_LABEL
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report import timelines
from rlhf_lab_analysis.report.groups import Group, name_groups
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.sources.record import Row
from tests.support import table_records as made
from tests.support.report_pages import Texts, data_of
from tests.support.virtual_files import write_virtual_files


def virtual_rounds() -> list[Row]:
    """Four rounds of a run on a virtual cluster, 30 virtual seconds each."""
    rounds = enumerate(made.rounds(4), start=1)
    return [{**row, "virtual_seconds/wall": 30.0 * number} for number, row in rounds]


def test_a_page_draws_virtual_lanes_in_their_own_unit(tmp_path: Path) -> None:
    write_virtual_files(tmp_path)
    record = made.record(place=str(tmp_path), rounds=virtual_rounds())
    found = Texts(html(made.tables(record), Options()))
    assert "by the clock of its virtual cluster" in found.text
    assert re.search(r"[\d.]+ virtual s; idle in the whole run: trainer \d+%", found.text)
    assert PAUSED_LABEL not in found.text


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


def test_the_clock_of_a_virtual_cluster_is_an_axis_with_a_name_of_its_own() -> None:
    text = html(made.tables(made.record(rounds=virtual_rounds())), Options())
    axes = {one["id"]: one["label"] for one in data_of(text)["axes"]}
    assert axes["x/virtual_seconds"] == "wall-clock of the virtual cluster (virtual s)"
    row = Texts(text).row("GRPO sync")
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
