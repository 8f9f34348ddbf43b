"""What N updates on one round cost on the way, where the end of training hides it.

Asked after the benchmark's runs had been seen: by their end all but the largest N have caught up.
"""

from __future__ import annotations

from dataclasses import replace

from analysis.comparison.claims import together
from analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    answer,
    change,
    tested,
)
from analysis.comparison.questions.off_policyness import QUESTION, Ladder, every_ladder
from analysis.comparison.selection import Cell, Selection
from analysis.statistics.decisions import Shows

BEHIND = Claim(
    QUESTION,
    "{} updates per round are behind {} after a quarter of the updates.",
    "nobody; asked after the runs were seen",
)
QUARTER = 4


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Every N between the least and the most against the least, early on."""
    steps = [
        (ladder, number)
        for ladder in every_ladder(selection)
        for number in sorted(ladder.steps)[1:-1]
    ]
    counts = together([(ladder.steps[number], ladder.low) for ladder, number in steps])
    found = [
        behind(ladder, number, criteria, count)
        for (ladder, number), count in zip(steps, counts, strict=True)
    ]
    return [one for one in found if one is not None]


def behind(ladder: Ladder, number: int, criteria: Criteria, count: int) -> Answer | None:
    """The difference at a quarter of the updates; None where no version of both is of then."""
    cell, low = ladder.steps[number], ladder.low
    updates = min(low.at_end("x/updates").values()) / QUARTER
    after, before = (at(one, updates, criteria) for one in (cell, low))
    if set(after) != set(cell.seeds) or set(before) != set(low.seeds):
        return None
    ends = f"N={number} against N={min(ladder.steps)}"
    made = tested(
        Number(f"{ladder.algo}, {ends}, after {updates:g} updates", change(after, before, count)),
        Shows.below,
        criteria.margin,
    )
    claim = replace(BEHIND, text=BEHIND.text.format(number, min(ladder.steps)))
    evidence = f"after {updates:g} updates, {ends}: {made.evidence}"
    return answer(claim, criteria, [cell, low], made.verdict, [made.number], evidence)


def at(cell: Cell, updates: float, criteria: Criteria) -> dict[int, float]:
    """The quality of the version of so many updates, by seed; seeds without one are left out."""
    return {
        seed: ys[xs.index(updates)]
        for seed, (xs, ys) in cell.paths("x/updates", criteria.quality).items()
        if updates in xs
    }
