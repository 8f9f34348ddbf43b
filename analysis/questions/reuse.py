"""What idle time can be spent on: more passes over a round, or more samples to choose from.

arXiv:2410.18252, figures 7 and 8.
"""

from __future__ import annotations

from analysis.questions.answers import (
    Answer,
    Asked,
    Claim,
    Number,
    Unit,
    answer,
    change,
    is_above,
    is_not_worse,
    options,
)
from analysis.questions.equal_cost import at_equal_cost
from analysis.questions.families import families
from analysis.selection import Cell, Selection
from analysis.statistics.contrasts import speed_up
from analysis.statistics.results import Estimate

PASSES = Claim(
    "passes",
    "Several passes over a round reach the same win-rate in as many updates, with fewer samples.",
    "arXiv:2410.18252, Fig. 7",
)
SAMPLES = Claim(
    "samples_per_prompt",
    "The best and worst of more samples reach the same win-rate in fewer updates.",
    "arXiv:2410.18252, Fig. 8",
)
PASSES_DRIFT = Claim(PASSES.question, "Several passes end at a larger KL.", PASSES.where)
SAMPLES_DRIFT = Claim(
    SAMPLES.question, "More samples in fewer updates end at a larger KL.", SAMPLES.where
)
SAVED = (("completions saved", "x/completions"), ("FLOPs saved", "x/flops"))


def ask(selection: Selection, asked: Asked) -> list[Answer]:
    """Each T against T=1, and each larger K in fewer updates against the smallest."""
    found = []
    for family in families(selection, ("passes",)):
        base, *others = family.line("passes").values()
        for cell in others:
            label = f"T={cell.parts['passes']} against T={base.parts['passes']}"
            found += both(PASSES, label, cell, base, asked, len(others))
    for family in families(selection, ("group_size", "updates")):
        base, *others = (cell for _, cell in sorted(family.cells.items()))
        fewer = [cell for cell in others if spends_less(cell, base)]
        for cell in fewer:
            label = f"K={cell.parts['group_size']} against K={base.parts['group_size']}"
            found += both(SAMPLES, label, cell, base, asked, len(fewer))
    return found


def spends_less(cell: Cell, base: Cell) -> bool:
    """Whether it makes fewer updates with more samples a prompt."""
    fewer: bool = cell.config("run.updates") < base.config("run.updates")
    return fewer and cell.parts["group_size"] > base.parts["group_size"]


def both(
    claim: Claim, label: str, cell: Cell, base: Cell, asked: Asked, together: int
) -> list[Answer]:
    """That it is not worse for less, and what that costs in KL."""
    scores = cell.scores(asked.quality), base.scores(asked.quality)
    made = change(*scores, together, sides=1)
    number = Number(label, made)
    saved = [
        Number(f"{what}, {label}", ratio(base, cell, axis, together), Unit.times)
        for what, axis in SAVED
    ]
    level = at_equal_cost(cell, base, "x/flops", asked, together)
    told = "; ".join(f"{one.label} {one.text}" for one in (*saved, level))
    reason = f"{label}: {number.text}, margin {100 * asked.margin:g} points; {told}"
    drifts = change(cell.scores(asked.drift), base.scores(asked.drift), together)
    kl = Number(f"KL, {label}", drifts, Unit.nats)
    price = PASSES_DRIFT if claim is PASSES else SAMPLES_DRIFT
    verdict = is_not_worse(made, asked.margin)
    return [
        answer(claim, asked, [cell, base], verdict, [number, *saved, level], reason),
        answer(price, asked, [cell, base], is_above(drifts, 0), [kl], f"{label}: KL {kl.text}"),
    ]


def ratio(base: Cell, cell: Cell, axis: str, together: int) -> Estimate:
    """How many times less of an axis the condition spent."""
    return speed_up(base.at_end(axis), cell.at_end(axis), options(together))
