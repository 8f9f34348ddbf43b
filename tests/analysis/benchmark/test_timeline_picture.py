"""The picture of sync beside async is what the tracked tables give."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.benchmark.timeline_picture import (
    SYNC_ROUNDS,
    async_spans,
    runs_of_modes,
    sync_spans,
    write_timeline_picture,
)
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.tables.table import Tables

pytestmark = pytest.mark.usefixtures("costly")


def test_both_modes_share_the_seconds_and_the_trainer_of_async_lags_its_generator(
    tmp_path: Path, kept_benchmark: Tables
) -> None:
    selection = cells(kept_benchmark)
    sync, concurrent = runs_of_modes(selection)
    above = sync_spans(sync)
    end = max(span.end for span in above)
    below = async_spans(concurrent, end)
    assert {span.round for span in above} == set(range(1, SYNC_ROUNDS + 1))
    assert all(0.0 <= span.start <= span.end <= end for span in [*above, *below])
    first = {span.lane: span.round for span in reversed(below)}
    assert first["trainer"] == 1
    assert first["generator"] > 1
    written = [write_timeline_picture(selection, tmp_path / f"{n}.png") for n in "ab"]
    assert written[0].read_bytes() == written[1].read_bytes()


def test_tables_without_these_runs_are_refused() -> None:
    with pytest.raises(UserError, match="no mode=sync of sync_async_nano"):
        runs_of_modes(Selection((), ()))
