"""Intervals of the boundary over staleness and rate.

The largest stable rate of each seed and S lies around the true boundary by logistic noise; runs at
each rate of a grid collapse above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.coverage import percent
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.boundary import Boundary, Trial, boundary

STALENESS = (0, 1, 2, 4, 8, 16)
RATES: Floats = np.geomspace(1e-5, 1e-2, 11)
NOISE = 0.25
SEEDS = (1, 3, 5, 8)
LINE, FLAT = "1 / (S + 1)", "flat"
# Logarithm of the largest stable rate at each S, and its slope on log(S + 1).
TRUTHS: Mapping[str, tuple[Callable[[float], float], float]] = {
    LINE: (lambda s: math.log(2e-3 / (s + 1)), -1.0),
    FLAT: (lambda s: math.log(3e-4), 0.0),
}


def trials(truth: Callable[[float], float], seeds: int, rng: np.random.Generator) -> list[Trial]:
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
    return [boundary(trials(TRUTHS[name][0], seeds, rng)) for rng in rngs]


def tables(simulations: int, seed: int) -> list[Table]:
    """A row for each truth and number of seeds."""
    rows = []
    for name, (_, slope) in TRUTHS.items():
        for seeds in SEEDS:
            made = [one.slope for one in fitted(name, seeds, simulations, seed)]
            share = float(np.mean([one.low <= slope <= one.high for one in made]))
            width = np.median([one.high - one.low for one in made])
            rows.append([name, str(seeds), percent(share, simulations), f"{width:.2f}"])
    title = "boundary over staleness and rate: shares in %"
    return [Table(title, ["truth", "seeds", "holds the slope", "its width"], rows)]
