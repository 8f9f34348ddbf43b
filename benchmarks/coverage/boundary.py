"""Intervals of the boundary over staleness and rate.

The largest stable rate of each seed and S lies around the true boundary by logistic noise; runs at
each rate of a grid collapse above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from benchmarks.coverage import percent
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.boundary import Boundary, Trial, boundary

STALENESS = (0, 1, 2, 4, 8, 16)
RATES: Floats = np.geomspace(1e-5, 1e-2, 11)
NOISE = 0.25
SEEDS = (1, 3, 5, 8)
# Logarithm of the largest stable rate at each S.
Truth: TypeAlias = Callable[[float], float]
LINE, FLAT = "1 / (S + 1)", "flat"
TRUTHS: Mapping[str, Truth] = {
    LINE: lambda s: math.log(2e-3 / (s + 1)),
    FLAT: lambda s: math.log(3e-4),
}
SLOPES = {LINE: -1.0, FLAT: 0.0}
LEAST = 20


def trials(truth: Truth, seeds: int, rng: np.random.Generator) -> list[Trial]:
    """The runs of a grid: of each seed and S at every rate."""
    made = []
    for staleness in STALENESS:
        for seed in range(seeds):
            threshold = truth(staleness) + float(rng.logistic(0, NOISE))
            made += [
                Trial(seed, staleness, float(rate), math.log(rate) > threshold) for rate in RATES
            ]
    return made


def fitted(name: str, seeds: int, simulations: int, seed: int) -> list[Boundary]:
    """The boundaries of simulated grids."""
    rngs = (generator(seed, "boundary", f"{name} {seeds} {n}") for n in range(simulations))
    return [boundary(trials(TRUTHS[name], seeds, rng)) for rng in rngs]


def holds_slope(name: str, made: Sequence[Boundary]) -> str:
    held = [one.slope.low <= SLOPES[name] <= one.slope.high for one in made]
    return percent(float(np.mean(held)), len(held))


# Columns behind truth and seeds.
COLUMNS: Mapping[str, Callable[[str, Sequence[Boundary]], str]] = {
    "holds the slope": holds_slope,
    "its width": lambda _, made: f"{np.median([b.slope.high - b.slope.low for b in made]):.2f}",
}


def tables(simulations: int, seed: int) -> list[Table]:
    """A row for each truth and number of seeds."""
    rows = []
    for name in TRUTHS:
        for seeds in SEEDS:
            made = fitted(name, seeds, simulations, seed)
            rows.append([name, str(seeds), *(text(name, made) for text in COLUMNS.values())])
    title = "boundary over staleness and rate: shares in %"
    return [Table(title, ["truth", "seeds", *COLUMNS], rows)]
