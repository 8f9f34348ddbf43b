"""The figure over staleness and rate: counts of collapsed runs, the boundary, and averages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlhf_lab_analysis.figures.catalogue import draw
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.sources.record import Record
from tests.support.figure_tables import rounded, run_of
from tests.support.table_records import rounds, tables

pytestmark = pytest.mark.usefixtures("costly")

STALENESS, RATES = (0, 1, 3, 7), (1e-4, 2e-4, 4e-4, 8e-4, 16e-4)
ROUNDS, TOP = 16, 1.2e-3
RISES = [0.0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8, 8, 8, 8]
FALLS = [0.0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0]


def made_run(staleness: int, rate: float, seed: int, top: float) -> Record:
    """A run of 16 rounds, whose reward falls from round 10 on where the rate is above top / (S + 1)
    by a little more or less of its seed."""
    end = 0.9 - 0.01 * staleness
    base = run_of(
        seed,
        {"mode": "lagged", "max_staleness": staleness, "lr": rate},
        {"gold/win_rate": end},
        "staleness_rate_nano",
    )
    has_collapsed = rate > top / (staleness + 1) * (1 + 0.1 * (seed - 2))
    rewards = FALLS if has_collapsed else RISES
    rows = [
        {**rounded(row, 1, "lagged"), "reward/mean": reward}
        for row, reward in zip(rounds(ROUNDS), rewards, strict=True)
    ]
    # Win-rates over updates 0, 8 and 16.
    evals = [
        {**row, "version": version} for row, version in zip(base.evals, (0, 8, 16), strict=True)
    ]
    facts = replace(base.facts, planned_rounds=ROUNDS)
    return replace(base, rounds=rows, evals=evals, facts=facts)


def drawn(top: float = TOP, seeds: tuple[int, ...] = (1, 2, 3)) -> DrawnFigure:
    made = (made_run(s, rate, seed, top) for s in STALENESS for rate in RATES for seed in seeds)
    return draw("staleness_rate", tables(*made))


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
    assert "falls as 1 / S" in made.caption
    # The tenth round is the first of the fall; the mean of four falls below half two rounds later.
    assert "S=0 optim.lr=0.0016 3 of 3, 12 up to 12" in made.caption
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
