"""How many rounds old samples may be, and what importance weights repair."""

from __future__ import annotations

from analysis.questions.answers import (
    Answer,
    Asked,
    Claim,
    Number,
    answer,
    change,
    is_above,
    is_below,
    is_nothing,
)
from analysis.questions.families import Family, families
from analysis.selection import Cell, Selection

QUESTION = "staleness"
ONE = Claim(QUESTION, "Samples one round old cost nothing.", "arXiv:2410.18252, Fig. 1")
OLDER = Claim(
    QUESTION, "Samples several rounds old cost win-rate.", "nobody; the paper does not test it"
)
REPAIRED = Claim(
    QUESTION, "Importance weights win some of it back.", "nobody; the paper does not test it"
)
PLAIN = "none"


def ask(selection: Selection, asked: Asked) -> list[Answer]:
    """Each S against S=0, and each correction against none at the same S."""
    found: list[Answer] = []
    for family in families(selection, ("max_staleness", "correction")):
        found += older(family, asked) + repaired(family, asked)
    return found


def older(family: Family, asked: Asked) -> list[Answer]:
    """Every S without a correction against fresh samples."""
    steps = family.line("max_staleness", correction=PLAIN)
    fresh = steps.pop(0, None)
    if fresh is None:
        return []
    # Sync against async is a question of its own.
    line = {s: cell for s, cell in steps.items() if cell.parts["mode"] == fresh.parts["mode"]}
    found = []
    for rounds, cell in line.items():
        claim = ONE if rounds == 1 else OLDER
        sides = 1 if claim is ONE else 2
        scores = cell.scores(asked.quality), fresh.scores(asked.quality)
        made = change(*scores, len(line), sides)
        number = Number(f"{algo(cell)}, S={rounds} against S=0", made)
        verdict = (is_nothing if claim is ONE else is_below)(made, asked.margin)
        reason = f"S={rounds} against S=0: {number.text}, margin {100 * asked.margin:g} points"
        found.append(answer(claim, asked, [cell, fresh], verdict, [number], reason))
    return found


def repaired(family: Family, asked: Asked) -> list[Answer]:
    """Every corrected condition against the same S without."""
    pairs = [
        (rounds, name, cell, plain)
        for rounds in family.values("max_staleness")
        for line in [family.line("correction", max_staleness=rounds)]
        for plain in [line.get(PLAIN)]
        for name, cell in line.items()
        if plain is not None and name != PLAIN and rounds > 0
    ]
    found = []
    for rounds, name, cell, plain in pairs:
        scores = cell.scores(asked.quality), plain.scores(asked.quality)
        made = change(*scores, len(pairs))
        number = Number(f"{algo(cell)}, S={rounds}, {name} less {PLAIN}", made)
        verdict = is_above(made, asked.margin)
        reason = f"S={rounds}, {name} less {PLAIN}: {number.text}"
        found.append(answer(REPAIRED, asked, [cell, plain], verdict, [number], reason))
    return found


def algo(cell: Cell) -> str:
    return str(cell.parts["algo"])
