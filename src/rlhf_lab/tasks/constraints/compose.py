"""Draw constraints that a text can satisfy together, and write a reference answer that does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from rlhf_lab.tasks.constraints import boundaries, formats, keywords, length, letters
from rlhf_lab.tasks.constraints.constraint_types import Constraint, ConstraintType, conflict
from rlhf_lab.tasks.constraints.reference_writer import KEYWORDS, ReferenceWriter, Stuck
from rlhf_lab.tasks.constraints.text import words

# Prompts are drawn in this order: a change of it changes all of them.
TYPES: dict[str, ConstraintType] = {
    one.name: one
    for one in (
        *length.TYPES,
        *keywords.TYPES,
        *letters.TYPES,
        *boundaries.TYPES,
        *formats.TYPES,
    )
}

# Fixed, so that results compare; some of every module, so that the test has new types of each.
HELD_OUT = frozenset(
    "words_exactly words_multiple sentences_exactly sentence_words_at_most growing_lines "
    "keywords_in_order keyword_in_sentence word_at_position unique_words palindromes "
    "hyphenated_words three_vowels word_length_at_least neighbours_differ title_case fenced "
    "ends_with_question first_word_last sentence_initials_differ lines_end_with csv_rows "
    "markdown_table divided parentheses commas_exactly semicolons_exactly".split()
)


class Types(StrEnum):
    """Which constraint types the prompts of a split have."""

    train = "train"
    held_out = "held_out"
    all = "all"


def types_of(types: Types) -> tuple[ConstraintType, ...]:
    return tuple(
        one
        for name, one in TYPES.items()
        if types is Types.all or (name in HELD_OUT) == (types is Types.held_out)
    )


# A repair may break another constraint: rounds until all hold, or the draw is given up.
ROUNDS = 12


def draw(
    rng: random.Random, types: Sequence[ConstraintType], num: int, request: str, topic: str
) -> tuple[tuple[Constraint, ...], str]:
    """Constraints of types that do not conflict, and a reference answer that satisfies all of them.

    Constraints for which no such answer is found are drawn again, so none contradict each other.
    """
    while True:
        constraints = tuple(
            with_params(type_, rng, request) for type_ in choose_types(rng, types, num)
        )
        reference = write_reference(constraints, rng, topic)
        if reference is not None:
            return constraints, reference


def choose_types(
    rng: random.Random, types: Sequence[ConstraintType], num: int
) -> list[ConstraintType]:
    """Draw types at random that do not conflict with each other."""
    chosen: list[ConstraintType] = []
    while len(chosen) < num:
        chosen = []
        for type_ in rng.sample(types, len(types)):
            if len(chosen) < num and not any(conflict(type_, other) for other in chosen):
                chosen.append(type_)
    return chosen


def with_params(type_: ConstraintType, rng: random.Random, request: str) -> Constraint:
    """A constraint of the type, with parameters drawn for it."""
    params = type_.draw(rng) | ({"request": request} if type_.takes_request else {})
    return Constraint(type_, params)


def write_reference(
    constraints: Sequence[Constraint], rng: random.Random, topic: str
) -> str | None:
    """A text that satisfies all constraints; None if repairs of a draft do not lead to one."""
    # Repairs must not remove the words of parameters.
    values = [value for constraint in constraints for value in constraint.params.values()]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    kept = {word for text in texts if isinstance(text, str) for word in words(text)}

    def is_allowed(word: str) -> bool:
        return all(c.type.allows is None or c.type.allows(word, **c.params) for c in constraints)

    writer = ReferenceWriter(rng, is_allowed, kept | set(KEYWORDS))
    in_order = sorted(constraints, key=lambda constraint: constraint.type.stage)
    try:
        sizes = [c.type.draft_words(**c.params) for c in constraints if c.type.draft_words]
        parts = [c.type.draft_sentences(**c.params) for c in constraints if c.type.draft_sentences]
        num_words = sizes[0] if sizes else 6 * max(parts) if parts else rng.randint(18, 34)
        num_sentences = max(parts) if parts else max(2, round(num_words / 7))
        text = writer.draft(num_words, num_sentences, topic)
        for _ in range(ROUNDS):
            if all(constraint.holds(text) for constraint in constraints):
                return text.strip()
            for constraint in in_order:
                if not constraint.holds(text):
                    text = constraint.type.repair(text, writer, **constraint.params)
    except Stuck:
        pass
    return None
