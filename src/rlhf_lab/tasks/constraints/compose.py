"""Draws constraints that can be kept together, with a reference answer that keeps them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Constraint, Kind, conflict
from rlhf_lab.tasks.constraints.lexicon import KEYWORDS
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter, Stuck
from rlhf_lab.tasks.constraints.text import words

# Mending one constraint may break another: rounds until all hold, or the draw is given up.
ROUNDS = 12


def draw(
    rng: random.Random, kinds: Sequence[Kind], num: int, request: str, topic: str
) -> tuple[tuple[Constraint, ...], str]:
    """So many constraints of kinds that do not conflict, and a text that keeps all of them.

    Constraints for which no such text is found are drawn anew, so none contradict each other.
    """
    while True:
        constraints = tuple(with_params(kind, rng, request) for kind in choose(rng, kinds, num))
        reference = write(constraints, rng, topic)
        if reference is not None:
            return constraints, reference


def choose(rng: random.Random, kinds: Sequence[Kind], num: int) -> list[Kind]:
    """Kinds in random order, each unless it conflicts with one that is chosen already."""
    chosen: list[Kind] = []
    while len(chosen) < num:
        chosen = []
        for kind in rng.sample(kinds, len(kinds)):
            if len(chosen) < num and not any(conflict(kind, other) for other in chosen):
                chosen.append(kind)
    return chosen


def with_params(kind: Kind, rng: random.Random, request: str) -> Constraint:
    """A kind with parameters drawn for it."""
    params = kind.draw(rng) | ({"request": request} if kind.takes_request else {})
    return Constraint(kind, params)


def write(constraints: Sequence[Constraint], rng: random.Random, topic: str) -> str | None:
    """A text that keeps all constraints; None if mending a draft does not get there."""
    kept = {word for c in constraints for value in c.params.values() for word in in_param(value)}
    pen = ReferenceWriter(rng, lambda word: allowed(word, constraints), kept | set(KEYWORDS))
    in_order = sorted(constraints, key=lambda constraint: constraint.kind.stage)
    try:
        text = first_draft(pen, constraints, rng, topic)
        for _ in range(ROUNDS):
            if all(constraint.holds(text) for constraint in constraints):
                return text.strip()
            for constraint in in_order:
                if not constraint.holds(text):
                    text = constraint.kind.repair(text, pen, **constraint.params)
    except Stuck:
        pass
    return None


def first_draft(
    pen: ReferenceWriter, constraints: Sequence[Constraint], rng: random.Random, topic: str
) -> str:
    """A text of about the length that the constraints want."""
    sizes = [c.kind.size(**c.params) for c in constraints if c.kind.size]
    pieces = [c.kind.pieces(**c.params) for c in constraints if c.kind.pieces]
    num_words = sizes[0] if sizes else 6 * max(pieces) if pieces else rng.randint(18, 34)
    num_sentences = max(pieces) if pieces else max(2, round(num_words / 7))
    return pen.draft(num_words, num_sentences, topic)


def allowed(word: str, constraints: Sequence[Constraint]) -> bool:
    """Whether no constraint speaks against a word."""
    return all(c.kind.allows is None or c.kind.allows(word, **c.params) for c in constraints)


def in_param(value: Any) -> list[str]:
    """Words of a parameter: a reference must not lose them while it is mended."""
    texts = value if isinstance(value, list) else [value]
    return [word for text in texts if isinstance(text, str) for word in words(text)]
