"""Measure how much of the loss at large N comes from a learning rate that falls once a round.

The published code lowers it so: its last round, a quarter of all updates at N=64, has rate zero.
"""

from __future__ import annotations

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
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.decisions import Shows

CLAIM = Claim(
    "rate_schedule",
    "A learning rate that falls once per update, not once per round, raises the win-rate at the "
    "largest N.",
    "nobody; the published code moves the rate per round",
)


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """Per round and per update at the largest N that has both, for each algorithm."""
    return [
        (steps["round"], steps["update"])
        for family in families(selection, ("updates_per_round", "schedule_per"))
        for _, steps in largest(family)
    ]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Per update against per round at the largest N that has both, for each algorithm."""
    pairs = [
        (family.first.parts["algo"], n, steps["update"], steps["round"])
        for family in families(selection, ("updates_per_round", "schedule_per"))
        for n, steps in largest(family)
    ]
    counts = count_together([(update, each_round) for *_, update, each_round in pairs])
    found = []
    for (algo, n, update, each_round), count in zip(pairs, counts, strict=True):
        scores = update.scores(criteria.quality), each_round.scores(criteria.quality)
        number = Number(
            f"{algo}, per update less per round, N={n}", change(*scores, count, Shows.above)
        )
        made = decide_number(number, Shows.above, criteria.margin)
        evidence = f"per update less per round at N={n}: {made.evidence}"
        found.append(
            answer(CLAIM, criteria, [update, each_round], made.verdict, [number], evidence)
        )
    return found


def largest(family: Family) -> list[tuple[int, dict[str, Cell]]]:
    """The largest N with both schedules, if there is one."""
    steps = {
        n: family.line("schedule_per", updates_per_round=n)
        for n in family.values("updates_per_round")
    }
    both = [(n, line) for n, line in steps.items() if len(line) > 1]
    return both[-1:]
