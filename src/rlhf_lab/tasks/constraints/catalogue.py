"""All constraint types by name, and those that are held out from training prompts."""

from __future__ import annotations

from enum import StrEnum

from rlhf_lab.tasks.constraints import (
    boundaries,
    data,
    edges,
    formats,
    keywords,
    length,
    letters,
    punctuation,
    vocabulary,
)
from rlhf_lab.tasks.constraints.constraint_types import ConstraintType

# Prompts are drawn in this order: a change of it changes all of them.
TYPES: dict[str, ConstraintType] = {
    one.name: one
    for one in (
        *length.TYPES,
        *keywords.TYPES,
        *vocabulary.TYPES,
        *letters.TYPES,
        *boundaries.TYPES,
        *edges.TYPES,
        *formats.TYPES,
        *data.TYPES,
        *punctuation.TYPES,
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
    """These types, in a fixed order."""
    return tuple(
        one
        for name, one in TYPES.items()
        if types is Types.all or (name in HELD_OUT) == (types is Types.held_out)
    )
