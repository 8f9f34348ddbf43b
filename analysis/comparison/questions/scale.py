"""Test whether larger policies or larger reward models lose less to off-policy samples.

arXiv:2410.18252, figure 5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.families import Family, families
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    answer,
    change,
    decide_number,
)
from rlhf_lab_analysis.comparison.questions.off_policyness import Ladder
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.decisions import Shows

WHERE = "arXiv:2410.18252, Fig. 5"
POLICY = Claim("policy_scale", "A larger policy loses less to off-policy samples.", WHERE)
REWARD = Claim("reward_scale", "A larger reward model does not make it lose less.", WHERE)

# The parts that sizes are of, with the claim about each. Nano proxies are models of `proxy`, those
# of the paper are options of `reward`.
SIZES = {"model": POLICY, "proxy": REWARD, "reward": REWARD}
PARAMETERS = re.compile(r"(?<![a-z0-9.])(?P<number>\d+(\.\d+)?)(?P<unit>[mb])\b")


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """The ladders of each size, wherever two sizes have one."""
    found = []
    for size in SIZES:
        for family in families(selection, ("updates_per_round", size)):
            names = sized(size, family.values(size))
            lines = [family.line("updates_per_round", **{size: name}) for name in names]
            ladders = [line for line in lines if len(line) > 1]
            if len(ladders) > 1:
                found.append(tuple(cell for line in ladders for cell in line.values()))
    return found


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Both claims, wherever two sizes have the same ladder."""
    found = []
    for size, claim in SIZES.items():
        for family in families(selection, ("updates_per_round", size)):
            found += compare_sizes(family, size, claim, criteria)
    return found


def sized(part: str, names: Sequence[str]) -> list[str]:
    """The options that are sizes of one thing. A reward may be of any kind: only those whose names
    end in a number of parameters, such as paper_proxy_1b, are reward models of some size."""
    return [name for name in names if part != "reward" or parameters(name)]


def parameters(name: str) -> float:
    """The millions of parameters that a name ends in: 410 of pythia_410m; 0 if it has none."""
    found = PARAMETERS.search(str(name))
    return float(found["number"]) * (1000 if found["unit"] == "b" else 1) if found else 0.0


def compare_sizes(family: Family, size: str, claim: Claim, criteria: Criteria) -> list[Answer]:
    """The loss along N at the largest size less that at the smallest."""
    found = [
        (name, Ladder(str(name), family.line("updates_per_round", **{size: name})))
        for name in sized(size, family.values(size))
    ]
    sizes = sorted(
        ((name, ladder) for name, ladder in found if len(ladder.steps) > 1),
        key=lambda one: (parameters(one[0]), work(one[1])),
    )
    if len(sizes) < 2:
        return []
    (small_name, small), (large_name, large) = sizes[0], sizes[-1]
    shows = Shows.below if claim is POLICY else Shows.equal
    made = change(large.loss(criteria.quality), small.loss(criteria.quality), shows=shows)
    number = Number(f"loss of {large_name} less that of {small_name}, {small.ends}", made)
    ends = [(ladder.high, ladder.low) for _, ladder in sizes]
    losses = [
        Number(
            f"{name}, {ladder.ends}",
            change(
                ladder.high.scores(criteria.quality), ladder.low.scores(criteria.quality), count
            ),
        )
        for (name, ladder), count in zip(sizes, count_together(ends), strict=True)
    ]
    result = decide_number(number, shows, criteria.margin)
    evidence = (
        f"{small.ends}, loss of {large_name} less that of {small_name}: {result.evidence}; "
        + ("; ".join(f"{loss.label} {loss.text}" for loss in losses))
    )
    cells = [cell for _, ladder in sizes for cell in (ladder.low, ladder.high)]
    return [answer(claim, criteria, cells, result.verdict, [number, *losses], evidence)]


def work(ladder: Ladder) -> float:
    """FLOPs of its runs, by which sizes are ordered: equal updates of a larger model are more."""
    ends = ladder.low.at_end("x/flops").values()
    return sum(ends) / len(ends)
