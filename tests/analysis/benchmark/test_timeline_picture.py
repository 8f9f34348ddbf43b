"""The picture of sync beside async is what the tables give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.benchmark.timeline_picture import (
    SWEEP,
    SYNC_ROUNDS,
    spans_of_modes,
    write_timeline_picture,
)
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.tables.table import Tables
from tests.support.figure_tables import end_of, rounded, run_of
from tests.support.table_records import rounds, tables

pytestmark = pytest.mark.usefixtures("costly")

ROUNDS = 32


def both_modes() -> Selection:
    """A run of each mode, with rounds of 10 and of 5.5 seconds."""
    runs = []
    for mode in ("sync", "async"):
        base = run_of(1, {"mode": mode}, end_of(1, 0.0), SWEEP)
        rows = [rounded(row, 1, mode) for row in rounds(ROUNDS)]
        facts = replace(base.facts, planned_rounds=ROUNDS)
        runs.append(replace(base, rounds=rows, facts=facts))
    return cells(tables(*runs))


def check_lanes(selection: Selection) -> float:
    """Both modes share the seconds, and the trainer of async lags its generator. Returns the
    seconds."""
    above, below = spans_of_modes(selection)
    end = max(span.end for span in above)
    assert len({span.round for span in above}) == SYNC_ROUNDS
    assert all(0.0 <= span.start <= span.end <= end + 1e-9 for span in [*above, *below])
    first = {span.lane: span.round for span in reversed(below) if span.seconds > 0}
    assert first["generator"] > first["trainer"]
    return end


def test_both_modes_share_the_seconds_and_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    selection = both_modes()
    assert check_lanes(selection) == pytest.approx(10 * SYNC_ROUNDS)
    written = [write_timeline_picture(selection, tmp_path / f"{n}.png") for n in "ab"]
    assert written[0].read_bytes() == written[1].read_bytes()


@pytest.mark.pages
def test_the_tracked_tables_give_the_picture(tmp_path: Path, kept_benchmark: Tables) -> None:
    selection = cells(kept_benchmark)
    check_lanes(selection)
    assert write_timeline_picture(selection, tmp_path / "a.png").stat().st_size > 1000


def test_tables_without_these_runs_are_refused() -> None:
    with pytest.raises(UserError, match="no mode=sync of sync_async_nano"):
        spans_of_modes(Selection((), ()))
