"""How often comparisons while seeds come in are wrong, and how often they find a difference.

`python -m benchmarks.speed.sequential_level`: ten seconds. Conditions are normal with a
deviation of 1. All alike: the share of simulations with any claim. One of them 2 higher: the share
of its pairs that are found, and the share of simulations with a claim about the others.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from rich.console import Console
from rich.table import Table

from rlhf_lab_analysis.statistics.plans import Bound, Decision, Plan
from rlhf_lab_analysis.statistics.sequential import sequential

CLAIMS = {Decision.larger, Decision.smaller}
HIGHER = 2.0
COLUMNS = ("bound", "conditions", "alike: any claim", "one higher: found", "wrong claim")


def claims(bound: Bound, names: str, higher: float, key: int) -> dict[tuple[str, str], bool]:
    """Of each pair whether a claim was made, in the simulation of this number."""
    rng = np.random.default_rng(key)
    scores = {name: rng.normal(0, 1, 5) for name in names}
    scores[names[0]] = scores[names[0]] + higher
    plan = Plan(seeds=5, interims=1, permutations=1000, bound=bound)
    made = sequential(scores, plan)
    return {pair: result.decision in CLAIMS for pair, result in made.pairs.items()}


def row(bound: Bound, names: str, runs: int) -> Iterator[str]:
    """A line of the table: shares in percent with their Monte Carlo errors."""
    alike = [any(claims(bound, names, 0.0, key).values()) for key in range(runs)]
    apart = [claims(bound, names, HIGHER, key) for key in range(runs)]
    true = [found[names[0], other] for found in apart for other in names[1:]]
    others = list(combinations(names[1:], 2))
    wrong = [any(found[pair] for pair in others) for found in apart]
    yield bound.value
    yield str(len(names))
    for share, number in ((alike, runs), (true, runs), (wrong, runs)):
        mean = float(np.mean(share))
        error = math.sqrt(mean * (1 - mean) / number)
        yield f"{100 * mean:.1f} ± {100 * error:.1f}" if len(others) or share is not wrong else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="simulations of a line")
    given = parser.parse_args()
    table = Table(title="5 seeds, one interim, level 5%: shares in %")
    for name in COLUMNS:
        table.add_column(name)
    for bound in Bound:
        for names in ("ab", "abc", "abcde"):
            table.add_row(*row(bound, names, given.runs))
    Console().print(table)


if __name__ == "__main__":
    main()
