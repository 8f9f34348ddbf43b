"""The sequential test against AdaStop 0.1.3: a pair, several conditions, its published example."""

from __future__ import annotations

import csv
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from rlhf_lab_analysis.statistics.plans import Bound, Decision, Pair, Plan
from rlhf_lab_analysis.statistics.sequential import sequential

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


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # of its plotting
@pytest.mark.skipif(importlib.util.find_spec("adastop") is None, reason="needs adastop")
@pytest.mark.parametrize(
    ("seeds", "interims", "names"), [(5, 1, "abc"), (3, 2, "abc"), (3, 2, "abcd")]
)
def test_several_conditions_are_decided_as_adastop_does(
    seeds: int, interims: int, names: str
) -> None:
    """All labelings are tried. Where the true one lies on the bound, their rounding decides: with 2
    seeds it does in 3 of 60 draws."""
    from adastop import MultipleAgentsComparator

    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    claims = 0
    for key in range(40):
        rng = np.random.default_rng(key)
        means = rng.choice([0, 1, 2], len(names))
        data = {n: rng.normal(m, 1, seeds * interims) for n, m in zip(names, means, strict=True)}
        theirs = MultipleAgentsComparator(n=seeds, K=interims, B=1000, alpha=0.1, seed=0)
        looked = 0
        while not theirs.is_finished:
            looked += 1
            theirs.partial_compare({n: v[: looked * seeds] for n, v in data.items()}, False)
        plan = Plan(seeds, interims, alpha=0.1, permutations=1000, bound=Bound.adastop)
        ours = sequential(data, plan)
        decided = dict(zip(pairs, (WORDS[word] for word in theirs.decisions.values()), strict=True))
        assert {pair: result.decision for pair, result in ours.pairs.items()} == decided
        assert ours.interims == looked
        claims += sum(decision is not Decision.not_shown for decision in decided.values())
    assert claims > 20


EXAMPLES = os.environ.get("ADASTOP_EXAMPLES", "")
# docs/tutorials.md of AdaStop: four agents on Walker2d, 5 groups of 5 runs, alpha 0.05.
PUBLISHED: dict[Pair, Decision] = {
    ("PPO", "DDPG"): Decision.larger,
    ("PPO", "SAC"): Decision.smaller,
    ("PPO", "TRPO"): Decision.larger,
    ("DDPG", "SAC"): Decision.smaller,
    ("DDPG", "TRPO"): Decision.smaller,
    ("SAC", "TRPO"): Decision.larger,
}


@pytest.mark.oracle
@pytest.mark.skipif(not EXAMPLES, reason="needs the folder examples of AdaStop: ADASTOP_EXAMPLES")
def test_the_published_decisions_of_four_agents() -> None:
    scores: dict[str, list[float]] = {}
    for number in range(1, 6):
        text = (Path(EXAMPLES) / f"walker{number}.csv").read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            for name, value in row.items():
                if name and value:
                    scores.setdefault(name, []).append(float(value))
    plan = Plan(seeds=5, interims=5, permutations=100_000, bound=Bound.adastop)
    made = sequential(scores, plan)
    assert {pair: result.decision for pair, result in made.pairs.items()} == PUBLISHED
    # PPO and SAC were decided with 10 runs, the others with 25.
    assert {pair for pair, result in made.pairs.items() if result.interims > 2} == {
        ("DDPG", "TRPO")
    }
    # The same two are not shown to differ where the level is kept.
    for bound in (Bound.holm, Bound.joint):
        kept = sequential(scores, Plan(5, 5, permutations=100_000, bound=bound))
        differing = {p for p, r in kept.pairs.items() if r.decision is not PUBLISHED[p]}
        assert differing == {("DDPG", "TRPO")}
