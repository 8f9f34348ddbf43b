"""Runs over staleness and learning rate that collapse above a known boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhf_lab_analysis.sources.record import Record
from tests.support.figure_tables import rounded, run_of
from tests.support.table_records import rounds

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


def grid(top: float = TOP, seeds: Sequence[int] = (1, 2, 3)) -> list[Record]:
    """A run of each staleness, rate and seed."""
    return [made_run(s, rate, seed, top) for s in STALENESS for rate in RATES for seed in seeds]
