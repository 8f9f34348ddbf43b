"""Kinds about words that repeat, and words of a certain make."""

from __future__ import annotations

from collections import Counter
from functools import partial

from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.lexicon import PALINDROMES
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter, swap
from rlhf_lab.tasks.constraints.text import spans, words


def replace_repeated(text: str, pen: ReferenceWriter) -> str:
    """The second of two equal words is replaced by one that the text has not."""
    while (again := first_repeated(text)) is not None:
        text = swap(text, again, pen.word("adjective", partial(is_absent, set(words(text)))))
    return text


def is_absent(present: set[str], word: str) -> bool:
    return word not in present


def first_repeated(text: str) -> tuple[int, int] | None:
    seen: set[str] = set()
    for start, end in spans(text):
        word = text[start:end].lower()
        if word in seen:
            return start, end
        seen.add(word)
    return None


def unique_share(text: str) -> float:
    return len(Counter(words(text))) / len(words(text))


def palindromes(text: str) -> set[str]:
    return {word for word in words(text) if len(word) > 2 and word == word[::-1]}


def add_palindromes(text: str, pen: ReferenceWriter, n: int) -> str:
    while len(palindromes(text)) < n:
        fresh = sorted(set(PALINDROMES) - palindromes(text))
        text = pen.keep(text, pen.rng.choice(fresh))
    return text


def hyphenated(text: str) -> list[str]:
    return [word for word in words(text) if "-" in word]


def add_hyphenated(text: str, pen: ReferenceWriter, n: int) -> str:
    while len(hyphenated(text)) < n:
        text = pen.keep(text, f"{pen.word('adjective')}-{pen.word('noun')}")
    return text


KINDS = (
    Kind(
        "no_word_repeated",
        "Use no word twice.",
        lambda rng: {},
        lambda text: first_repeated(text) is None,
        replace_repeated,
        Stage.words,
        aspects("repeat"),
    ),
    Kind(
        "unique_words",
        "At least {percent}% of the words must be new, that is, not used earlier in the text.",
        lambda rng: {"percent": rng.choice((80, 85, 90))},
        lambda text, percent: 100 * unique_share(text) >= percent,
        lambda text, pen, percent: replace_repeated(text, pen),
        Stage.words,
        aspects("repeat"),
    ),
    Kind(
        "palindromes",
        "Use at least {n} different palindromes of three or more letters.",
        lambda rng: {"n": rng.randint(2, 3)},
        lambda text, n: len(palindromes(text)) >= n,
        add_palindromes,
        Stage.words,
        brings_words=True,
    ),
    Kind(
        "hyphenated_words",
        "Use at least {n} words with a hyphen inside.",
        lambda rng: {"n": rng.randint(2, 4)},
        lambda text, n: len(hyphenated(text)) >= n,
        add_hyphenated,
        Stage.words,
        brings_words=True,
    ),
)
