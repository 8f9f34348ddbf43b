"""What a condition knows of its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from tests.support.table_records import config, record, tables

LATER = "optim.max_gradient_cosine"


def run(seed: int, **optim: Any) -> Record:
    own = config(seed)
    return replace(record(f"r{seed}", seed), config=own | {"optim": own["optim"] | optim})


def test_runs_from_before_an_option_have_its_first_default() -> None:
    """corrections_2026_nano was extended after max_gradient_cosine had come."""
    (cell,) = cells(tables(run(1), run(2, max_gradient_cosine=1.0))).cells
    assert cell.seeds == (1, 2) and cell.config(LATER) == 1.0
    (cell,) = cells(tables(run(1), run(2))).cells
    assert cell.config(LATER) is None


def test_a_setting_that_differs_within_a_condition_is_refused() -> None:
    (cell,) = cells(tables(run(1), run(2, max_gradient_cosine=0.5))).cells
    with pytest.raises(UserError, match=r"max_gradient_cosine is 1\.0 and 0\.5 in runs of it"):
        cell.config(LATER)
