"""Score a text by the constraints that it satisfies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol


class Score(StrEnum):
    """all: 1 if every constraint holds, else 0. share: the share of them that holds."""

    all = "all"
    share = "share"


class Scoring(StrEnum):
    """strict: the text itself. loose: a constraint may hold for any variant of the text."""

    strict = "strict"
    loose = "loose"


class Checked(Protocol):
    """A constraint that a text satisfies or not."""

    def holds(self, text: str) -> bool: ...


def score(constraints: Sequence[Checked], text: str, rule: Score, scoring: Scoring) -> float:
    """From 0 to 1."""
    variants = [text] if scoring is Scoring.strict else list(loosened(text))
    hold = [any(constraint.holds(variant) for variant in variants) for constraint in constraints]
    return float(all(hold)) if rule is Score.all else sum(hold) / len(hold)


def loosened(text: str) -> Iterator[str]:
    """The text; without its first line, its last, and both; and each of these without asterisks.

    This forgives an opening line such as "Sure, here it is:" and emphasis (arXiv:2311.07911).
    """
    lines = text.strip().split("\n")
    for part in (lines, lines[1:], lines[:-1], lines[1:-1]):
        variant = "\n".join(part).strip()
        yield variant
        yield variant.replace("*", "")
