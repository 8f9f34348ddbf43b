"""The sequential test against AdaStop 0.1.3, for a pair of conditions."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from rlhf_lab_analysis.statistics.sequential import Decision, Plan, sequential

WORDS = {
    "larger": Decision.larger,
    "smaller": Decision.smaller,
    "equal": Decision.not_shown,
    "continue": Decision.undecided,
}


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # of its plotting
@pytest.mark.skipif(importlib.util.find_spec("adastop") is None, reason="needs adastop")
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("interims", [1, 2])
def test_a_pair_is_decided_as_adastop_does_at_half_the_level(shift: float, interims: int) -> None:
    """adastop 0.1.3 holds |difference| against a one-sided quantile: its level is twice alpha.

    All labelings are tried: 252 of one interim of 5 seeds, 20 and 400 of two of 3.
    """
    from adastop import MultipleAgentsComparator

    seeds = 5 if interims == 1 else 3
    rng = np.random.default_rng(0)
    for _ in range(40):
        first, second = rng.normal(0, 1, 10), rng.normal(shift, 1, 10)
        theirs = MultipleAgentsComparator(n=seeds, K=interims, B=500, alpha=0.1, seed=0)
        looked = 0
        while not theirs.is_finished:
            looked += 1
            data = {"a": first[: looked * seeds], "b": second[: looked * seeds]}
            theirs.partial_compare(data, False)
        (decided,) = theirs.decisions.values()
        plan = Plan(seeds=seeds, interims=interims, alpha=0.2, permutations=1000)
        ours = sequential({"a": first, "b": second}, plan).pairs["a", "b"]
        assert (ours.decision, ours.interims) == (WORDS[decided], looked)
