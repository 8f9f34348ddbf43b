"""Measure what N updates a round cost early in training, which the end of training hides.

This question was chosen after seeing the benchmark's runs, in which all but the largest N have
caught up by the end.
"""

from __future__ import annotations

from dataclasses import replace

from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    answer,
    change,
    decide_number,
)
from rlhf_lab_analysis.comparison.questions.off_policyness import QUESTION, Ladder, every_ladder
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.decisions import Shows

BEHIND = Claim(
    QUESTION,
    "{} updates per round are behind {} after a quarter of the updates.",
    "nobody; asked after the runs were seen",
)
QUARTER = 4


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """The steps of each ladder of three or more."""
    return [tuple(one.cells) for one in every_ladder(selection) if len(one.steps) > 2]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Every N between the least and the most against the least, early on."""
    steps = [
        (ladder, number)
        for ladder in every_ladder(selection)
        for number in sorted(ladder.steps)[1:-1]
    ]
    counts = count_together([(ladder.steps[number], ladder.low) for ladder, number in steps])
    found = [
        behind(ladder, number, criteria, count)
        for (ladder, number), count in zip(steps, counts, strict=True)
    ]
    return [one for one in found if one is not None]


def behind(ladder: Ladder, number: int, criteria: Criteria, count: int) -> Answer | None:
    """The difference at a quarter of the updates; None if a seed has no version of that time."""
    cell, low = ladder.steps[number], ladder.low
    updates = min(low.at_end("x/updates").values()) / QUARTER
    after, before = (at(one, updates, criteria) for one in (cell, low))
    if set(after) != set(cell.seeds) or set(before) != set(low.seeds):
        return None
    ends = f"N={number} against N={min(ladder.steps)}"
    made = decide_number(
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
