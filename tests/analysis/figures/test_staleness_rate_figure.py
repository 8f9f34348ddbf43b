"""The figure over staleness and rate: counts of collapsed runs, the boundary, and averages."""

from __future__ import annotations

import functools

import pytest

from rlhf_lab_analysis.figures.catalogue import draw
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from tests.support.collapsing_runs import RATES, STALENESS, TOP, grid
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")


@functools.cache
def drawn(top: float = TOP, seeds: tuple[int, ...] = (1, 2, 3)) -> DrawnFigure:
    return draw("staleness_rate", tables(*grid(top, seeds)))


def test_collapsed_runs_are_counted_and_the_boundary_is_that_of_the_runs() -> None:
    made = drawn()
    counts = made.data[made.data["part"] == "collapsed"]
    assert len(counts) == len(STALENESS) * len(RATES)
    # 1.2e-3 over S + 1 = 2 is 6e-4, above which lies 8e-4 alone of those below 1.6e-3.
    fallen = {(row.x, row.condition): row.y for row in counts.itertuples()}
    assert {y for (x, _), y in fallen.items() if x == 1} == {0, 1}
    assert sum(y for (x, _), y in fallen.items() if x == 1) == 2
    line = made.data[made.data["part"] == "boundary"].set_index("x")
    for staleness in STALENESS:
        row = line.loc[staleness]
        assert row["low"] < TOP / (staleness + 1) < row["high"]
    assert "slope of log rate on log(S + 1)" in made.caption
    # The tenth round is the first of the fall; the mean of four falls below half two rounds later.
    assert "S=0 learning rate 0.0016 3 of 3, 12 up to 12" in made.caption
    texts = [text.get_text() for text in made.figure.axes[0].texts]
    assert texts.count("3/3") == sum(y == 1 for y in fallen.values())


def test_win_rates_are_drawn_at_the_end_and_averaged() -> None:
    made = drawn()
    rows = made.data[(made.data["x"] == RATES[0]) & (made.data["condition"].str.startswith("S=1"))]
    by_part = rows.set_index("part")["y"]
    # From .445 at 0 over three quarters of .89 at 8 to .89 at 16: the mean is three quarters.
    assert by_part["end"] == pytest.approx(0.89)
    assert by_part["average"] == pytest.approx(0.75 * 0.89)
    assert {*made.data["y_name"]} >= {"gold/win_rate averaged over updates"}


def test_a_grid_without_collapse_has_no_boundary_but_a_reason() -> None:
    made = drawn(top=1.0)
    assert "boundary" not in {*made.data["part"]}
    assert "no boundary is fitted: 0 values of S" in made.caption


def test_one_seed_is_drawn() -> None:
    made = drawn(seeds=(2,))
    assert "boundary" in {*made.data["part"]} and "n = 1" in made.caption
