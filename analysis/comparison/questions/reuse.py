"""Measure what more passes over a round, or more samples a prompt, gain and cost.

arXiv:2410.18252, figures 7 and 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhf_lab_analysis.comparison.claims import Pair, count_together
from rlhf_lab_analysis.comparison.families import families, value_of
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    Unit,
    answer,
    change,
    decide_number,
)
from rlhf_lab_analysis.comparison.questions.equal_cost import at_equal_cost
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.contrasts import speed_up
from rlhf_lab_analysis.statistics.decisions import Shows, options_of
from rlhf_lab_analysis.statistics.results import Estimate

PASSES = Claim(
    "passes",
    "{} passes over a round reach the same win-rate in as many updates, with fewer samples.",
    "arXiv:2410.18252, Fig. 7",
)
SAMPLES = Claim(
    "samples_per_prompt",
    "The best and worst of {} samples reach the same win-rate in fewer updates.",
    "arXiv:2410.18252, Fig. 8",
)
PASSES_DRIFT = Claim(PASSES.question, "{} passes end at a larger KL.", PASSES.source)
SAMPLES_DRIFT = Claim(
    SAMPLES.question, "{} samples in fewer updates end at a larger KL.", SAMPLES.source
)
SAVED = (("completions saved", "x/completions"), ("FLOPs saved", "x/flops"))


def passes_compared(selection: Selection) -> list[Pair]:
    """Each T with T=1."""
    pairs = []
    for family in families(selection, ("passes",)):
        base, *others = family.line("passes").values()
        pairs += [(cell, base) for cell in others]
    return pairs


def samples_compared(selection: Selection) -> list[Pair]:
    """Each larger K in fewer updates with the smallest."""
    pairs = []
    for family in families(selection, ("group_size", "updates")):
        base, *others = sorted(family.cells, key=size_of)
        pairs += [(cell, base) for cell in others if spends_less(cell, base)]
    return pairs


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """Every such pair, the baseline first."""
    pairs = [*passes_compared(selection), *samples_compared(selection)]
    return [(base, cell) for cell, base in pairs]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Each T against T=1, and each larger K in fewer updates against the smallest."""
    return [
        *answers_of(PASSES, ("T", "passes"), passes_compared(selection), criteria),
        *answers_of(SAMPLES, ("K", "group_size"), samples_compared(selection), criteria),
    ]


def answers_of(
    claim: Claim, named: tuple[str, str], pairs: Sequence[Pair], criteria: Criteria
) -> list[Answer]:
    """Both answers for each pair. named: the letter and name of the part that changes."""
    found = []
    letter, part = named
    for (cell, base), count in zip(pairs, count_together(pairs), strict=True):
        ends = [f"{letter}={one.parts[part]}" for one in (cell, base)]
        found += pair_answers(claim, " against ".join(ends), (cell, base), criteria, count)
    return found


def spends_less(cell: Cell, base: Cell) -> bool:
    """Whether it makes fewer updates with more samples a prompt."""
    fewer: bool = cell.config("run.updates") < base.config("run.updates")
    return fewer and cell.parts["group_size"] > base.parts["group_size"]


def pair_answers(
    claim: Claim, label: str, pair: Pair, criteria: Criteria, count: int
) -> list[Answer]:
    """The answers on quality, not worse at a lower cost, and on the KL of one pair."""
    cell, base = pair
    price = PASSES_DRIFT if claim is PASSES else SAMPLES_DRIFT
    number = cell.parts["passes" if claim is PASSES else "group_size"]
    claims = [replace(one, text=one.text.format(number)) for one in (claim, price)]
    scores = cell.scores(criteria.quality), base.scores(criteria.quality)
    loss = Number(label, change(*scores, count, Shows.not_worse))
    made = decide_number(loss, Shows.not_worse, criteria.margin)
    saved = [
        Number(f"{what}, {label}", ratio(base, cell, axis, count), Unit.times)
        for what, axis in SAVED
    ]
    level = at_equal_cost(cell, base, "x/flops", criteria, count)
    costs = "; ".join(f"{one.label} {one.text}" for one in (*saved, level))
    evidence = f"{label}: {made.evidence}, {criteria.margin_text}; {costs}"
    drifts = change(cell.scores(criteria.drift), base.scores(criteria.drift), count, Shows.above)
    kl = decide_number(Number(f"KL, {label}", drifts, Unit.nats), Shows.above, 0.0)
    return [
        answer(claims[0], criteria, pair, made.verdict, [made.number, *saved, level], evidence),
        answer(claims[1], criteria, pair, kl.verdict, [kl.number], f"{label}: KL {kl.evidence}"),
    ]


def ratio(base: Cell, cell: Cell, axis: str, count: int) -> Estimate:
    """How many times less of an axis the condition spent."""
    return speed_up(base.at_end(axis), cell.at_end(axis), options_of(Shows.above, count))


def size_of(cell: Cell) -> tuple[int, int]:
    """Samples per prompt, then updates."""
    return value_of(cell, "group_size"), value_of(cell, "updates")
