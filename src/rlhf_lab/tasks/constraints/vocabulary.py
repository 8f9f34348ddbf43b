"""Constraints on repeated words, and on words with a certain spelling."""

from __future__ import annotations

from rlhf_lab.tasks.constraints.constraint_types import ConstraintType, Count, Stage, at_least
from rlhf_lab.tasks.constraints.lexicon import PALINDROMES
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter, Span, is_none_of, swap
from rlhf_lab.tasks.constraints.text import spans, words


def first_repeated(text: str) -> Span | None:
    """Where the first word stands that was used before."""
    seen: set[str] = set()
    for start, end in spans(text):
        word = text[start:end].lower()
        if word in seen:
            return start, end
        seen.add(word)
    return None


def replace_repeated(text: str, writer: ReferenceWriter) -> str:
    """Replace every repeated word by one that is not in the text."""
    while (repeated := first_repeated(text)) is not None:
        text = swap(text, repeated, writer.word("adjective", is_none_of(words(text))))
    return text


def palindromes(text: str) -> set[str]:
    return {word for word in words(text) if len(word) > 2 and word == word[::-1]}


def add_palindromes(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    while len(palindromes(text)) < low:
        unused = sorted(set(PALINDROMES) - palindromes(text))
        text = writer.insert_and_keep(text, writer.rng.choice(unused))
    return text


def num_hyphenated(text: str) -> int:
    return sum("-" in word for word in words(text))


def add_hyphenated(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    while num_hyphenated(text) < low:
        word = f"{writer.word('adjective')}-{writer.word('noun')}"
        text = writer.insert_and_keep(text, word)
    return text


PALINDROMES_USED = Count(
    lambda text: len(palindromes(text)), add_palindromes, Stage.words, brings_words=True
)
HYPHENATED = Count(num_hyphenated, add_hyphenated, Stage.words, brings_words=True)
TYPES = (
    ConstraintType(
        "no_word_repeated",
        "Use no word twice.",
        lambda text: first_repeated(text) is None,
        replace_repeated,
        aspects="repeat",
    ),
    ConstraintType(
        "unique_words",
        "At least {percent}% of the words must be new, that is, not used earlier in the text.",
        lambda text, percent: 100 * (len(set(words(text))) / len(words(text))) >= percent,
        lambda text, writer, percent: replace_repeated(text, writer),
        lambda rng: {"percent": rng.choice((80, 85, 90))},
        aspects="repeat",
    ),
    PALINDROMES_USED.limited(
        "palindromes",
        "Use at least {n} different palindromes of three or more letters.",
        at_least(2, 3),
    ),
    HYPHENATED.limited(
        "hyphenated_words", "Use at least {n} words with a hyphen inside.", at_least(2, 4)
    ),
)
