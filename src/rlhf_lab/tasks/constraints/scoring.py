"""How well a text keeps its constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from rlhf_lab.tasks.constraints.kinds import Constraint


class Score(StrEnum):
    """all: 1 if every constraint is kept, else 0. share: the share of them that is kept."""

    all = "all"
    share = "share"


class Scoring(StrEnum):
    """strict: the text as it is. loose: a constraint may be kept by any variant of the text."""

    strict = "strict"
    loose = "loose"


def score(constraints: Sequence[Constraint], text: str, rule: Score, scoring: Scoring) -> float:
    """From 0 to 1."""
    variants = [text] if scoring is Scoring.strict else list(loosened(text))
    kept = [any(constraint.holds(variant) for variant in variants) for constraint in constraints]
    return float(all(kept)) if rule is Score.all else sum(kept) / len(kept)


def loosened(text: str) -> Iterator[str]:
    """The text; without its first, its last, both lines; and each without asterisks.

    An opening line such as "Sure, here it is:" and emphasis are then no fault (arXiv:2311.07911).
    """
    lines = text.strip().split("\n")
    for part in (lines, lines[1:], lines[:-1], lines[1:-1]):
        variant = "\n".join(part).strip()
        yield variant
        yield variant.replace("*", "")
