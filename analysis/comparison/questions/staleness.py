"""Measure what samples that are S rounds old cost, and what importance weights regain."""

from __future__ import annotations

from dataclasses import replace

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

QUESTION = "staleness"
ONE = Claim(QUESTION, "Samples one round old cost nothing.", "arXiv:2410.18252, Fig. 1")
OLDER = Claim(
    QUESTION, "Samples {} rounds old cost win-rate.", "nobody; the paper does not test it"
)
REPAIRED = Claim(
    QUESTION,
    "Importance weights raise the win-rate of samples up to {} rounds old.",
    "nobody; the paper does not test it",
)
PLAIN = "none"


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """Each S with S=0, and each correction with none, the baseline first."""
    every = families(selection, ("max_staleness", "correction"))
    steps = [(fresh, cell) for family in every for _, cell, fresh in older(family)]
    repairs = [(plain, cell) for family in every for *_, cell, plain in repaired(family)]
    return [*steps, *repairs]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Each S against S=0, and each correction against none at the same S."""
    found: list[Answer] = []
    every = families(selection, ("max_staleness", "correction"))
    steps = [step for family in every for step in older(family)]
    counts = count_together([(cell, fresh) for _, cell, fresh in steps])
    for step, count in zip(steps, counts, strict=True):
        found.append(cost_of(*step, criteria, count))
    repairs = [
        repair
        for family in every
        for repair in repaired(family)
        if has_acted(*repair[2:], criteria)
    ]
    counts = count_together([(cell, plain) for *_, cell, plain in repairs])
    for repair, count in zip(repairs, counts, strict=True):
        found.append(gain_of(*repair, criteria, count))
    return found


def idle(selection: Selection, criteria: Criteria) -> list[str]:
    """A line for each correction that changed nothing, which therefore gets no verdict."""
    return [
        f"not compared: {cell.condition}: correction={name} changed no evaluated version"
        for family in families(selection, ("max_staleness", "correction"))
        for _, name, cell, plain in repaired(family)
        if not has_acted(cell, plain, criteria)
    ]


def has_acted(cell: Cell, plain: Cell, criteria: Criteria) -> bool:
    """Whether quality or drift of any version differs between a correction and none, at the same
    seed. Runs repeat bit for bit, so that equal numbers are those of equal weights. Without a
    common seed nothing shows that it did not act."""
    columns = ["version", criteria.quality, criteria.drift]
    common = {*cell.seeds} & {*plain.seeds}
    return not common or any(
        not cell.rows[seed][columns]
        .reset_index(drop=True)
        .equals(plain.rows[seed][columns].reset_index(drop=True))
        for seed in common
    )


def older(family: Family) -> list[tuple[int, Cell, Cell]]:
    """Every S without a correction, with its condition and that of fresh samples."""
    steps = family.line("max_staleness", correction=PLAIN)
    fresh = steps.pop(0, None)
    if fresh is None:
        return []
    # Sync against async is a question of its own.
    return [(s, cell, fresh) for s, cell in steps.items() if is_like(cell, fresh)]


def is_like(cell: Cell, fresh: Cell) -> bool:
    return bool(cell.parts["mode"] == fresh.parts["mode"])


def cost_of(rounds: int, cell: Cell, fresh: Cell, criteria: Criteria, count: int) -> Answer:
    """Whether samples one round old cost nothing, and older ones something."""
    claim, shows = (ONE, Shows.equal) if rounds == 1 else (OLDER, Shows.below)
    scores = cell.scores(criteria.quality), fresh.scores(criteria.quality)
    number = Number(f"{algo(cell)}, S={rounds} against S=0", change(*scores, count, shows))
    made = decide_number(number, shows, criteria.margin)
    evidence = f"S={rounds} against S=0: {made.evidence}, {criteria.margin_text}"
    claim = replace(claim, text=claim.text.format(rounds))
    return answer(claim, criteria, [cell, fresh], made.verdict, [number], evidence)


def repaired(family: Family) -> list[tuple[int, str, Cell, Cell]]:
    """Every corrected condition and the same S without."""
    return [
        (rounds, name, cell, plain)
        for rounds in family.values("max_staleness")
        for line in [family.line("correction", max_staleness=rounds)]
        for plain in [line.get(PLAIN)]
        for name, cell in line.items()
        if plain is not None and name != PLAIN and rounds > 0
    ]


def gain_of(
    rounds: int, name: str, cell: Cell, plain: Cell, criteria: Criteria, count: int
) -> Answer:
    """Whether a correction ends above none."""
    scores = cell.scores(criteria.quality), plain.scores(criteria.quality)
    label = f"S={rounds}, {name} less {PLAIN}"
    number = Number(f"{algo(cell)}, {label}", change(*scores, count, Shows.above))
    made = decide_number(number, Shows.above, criteria.margin)
    evidence = f"{label}: {made.evidence}"
    claim = replace(REPAIRED, text=REPAIRED.text.format(rounds))
    return answer(claim, criteria, [cell, plain], made.verdict, [number], evidence)


def algo(cell: Cell) -> str:
    return str(cell.parts["algo"])
