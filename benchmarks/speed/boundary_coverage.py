"""How often the intervals of the boundary over staleness and rate hold the truth.

`python -m benchmarks.speed.boundary_coverage`: two minutes. The largest stable rate of each
seed and S lies around the true boundary by logistic noise; runs at each rate of a grid collapse
above it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.boundary import Boundary, boundary
from rlhf_lab_analysis.statistics.stability_grid import Trial

STALENESS = (0, 1, 2, 4, 8, 16)
RATES: Floats = np.geomspace(1e-5, 1e-2, 11)
NOISE = 0.25
SEEDS = (1, 3, 5, 8)
BINDING = 4.0
# Logarithm of the largest stable rate at each S.
Truth: TypeAlias = Callable[[float], float]
LINE, FLAT, RULE = "1 / (S + 1)", "flat", "two constants"
TRUTHS: Mapping[str, Truth] = {
    LINE: lambda s: math.log(2e-3 / (s + 1)),
    FLAT: lambda s: math.log(3e-4),
    RULE: lambda s: math.log(1e-3 * min(1.0, BINDING / s if s else 1.0)),
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


def percent(hits: list[bool]) -> str:
    """A share with its Monte Carlo error."""
    share = float(np.mean(hits))
    return f"{100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / len(hits)):.1f}"


def row(name: str, seeds: int, made: list[Boundary]) -> list[str]:
    """A line of the table."""
    none = "–"  # noqa: RUF001
    slope = SLOPES.get(name)
    holds = [slope is not None and one.slope.low <= slope <= one.slope.high for one in made]
    binds = [one.binding.low <= BINDING <= one.binding.high for one in made]
    is_tested = not math.isnan(made[0].line_p)
    return [
        name,
        str(seeds),
        percent(holds) if slope is not None else none,
        f"{np.median([one.slope.high - one.slope.low for one in made]):.2f}",
        percent(binds) if name == RULE else none,
        percent([one.line_p < 0.05 for one in made]) if is_tested else none,
        percent([one.rule_p < 0.05 for one in made]) if is_tested else none,
    ]


def run(given: argparse.Namespace, console: Console) -> None:
    """Simulate, and print the table in Markdown."""
    if given.simulations < LEAST:
        raise UserError(f"simulations={given.simulations}: pass {LEAST} or more")
    begin = time.perf_counter()
    rows = [
        row(name, seeds, fitted(name, seeds, given.simulations, given.seed))
        for name in TRUTHS
        for seeds in SEEDS
    ]
    columns = [
        *("truth", "seeds", "holds the slope", "its width", "holds the binding S"),
        *("line rejected at 5%", "two constants rejected at 5%"),
    ]
    table = Table("boundary over staleness and rate: shares in %", columns, rows)
    console.print("\n".join(table.markdown))
    console.print(f"Took {time.perf_counter() - begin:.0f} s.")


def main(arguments: list[str] | None = None) -> int:
    """Command line; exit code 2 if an option cannot be used."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals of the boundary.")
    parser.add_argument("--simulations", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    return exit_code("boundary_coverage", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
