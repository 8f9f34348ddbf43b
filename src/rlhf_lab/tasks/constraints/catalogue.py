"""All kinds by name, and which of them no training prompt has."""

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
    structure,
    vocabulary,
)
from rlhf_lab.tasks.constraints.kinds import Kind

PARTS = (
    length,
    structure,
    keywords,
    vocabulary,
    letters,
    boundaries,
    edges,
    formats,
    data,
    punctuation,
)
KINDS: dict[str, Kind] = {kind.name: kind for part in PARTS for kind in part.KINDS}

# Fixed, so that results compare: something of every part is new at the test.
HELD_OUT = frozenset(
    "words_exactly words_multiple sentences_exactly sentence_words_at_most growing_lines "
    "keywords_in_order keyword_in_sentence word_at_position unique_words palindromes "
    "hyphenated_words three_vowels word_length_at_least neighbours_differ title_case fenced "
    "ends_with_question first_word_last sentence_initials_differ lines_end_with csv_rows "
    "markdown_table divided parentheses commas_exactly semicolons_exactly".split()
)


class Types(StrEnum):
    """Which kinds of constraints a split's prompts have."""

    train = "train"
    held_out = "held_out"
    all = "all"


def kinds_of(types: Types) -> tuple[Kind, ...]:
    """The kinds, in a fixed order."""
    return tuple(
        kind
        for name, kind in KINDS.items()
        if types is Types.all or (name in HELD_OUT) == (types is Types.held_out)
    )
