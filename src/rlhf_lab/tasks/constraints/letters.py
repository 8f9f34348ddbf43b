"""Kinds about letters, the length of words, and capitals."""

from __future__ import annotations

import itertools
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Params, Stage, aspects
from rlhf_lab.tasks.constraints.reference_writer import (
    ReferenceWriter,
    begins_in,
    begins_outside,
    swap,
)
from rlhf_lab.tasks.constraints.text import WORD, spans, words

VOWELS = frozenset("aeiou")


def draw_letter(letters: str, low: int, high: int) -> Any:
    """A letter and how often."""
    return lambda rng: {"letter": rng.choice(letters), "n": rng.randint(low, high)}


def add_letter(text: str, pen: ReferenceWriter, letter: str, n: int) -> str:
    while text.lower().count(letter) < n:
        word = pen.word("noun", lambda word: letter in word)
        text = pen.put(text, word, lambda word: letter not in word)
    return text


def has_run(text: str, letter: str, n: int) -> bool:
    """Whether n words in a row begin with the letter."""
    runs = itertools.groupby(words(text), key=lambda word: word.startswith(letter))
    return any(begins and len(list(run)) >= n for begins, run in runs)


def add_run(text: str, pen: ReferenceWriter, letter: str, n: int) -> str:
    """Neighbouring words are replaced."""
    spots = pen.spots(text)
    places = [
        spots[i : i + n]
        for i in range(len(spots) - n + 1)
        if all(a[1] + 1 == b[0] for a, b in itertools.pairwise(spots[i : i + n]))
    ]
    chosen = pen.choose(places)
    parts = ("adjective", "noun", "verb", "noun")
    for part, span in reversed(list(zip(parts, chosen, strict=False))):
        text = swap(text, span, pen.word(part, begins_in(letter)))
    return text


def neighbours_differ(text: str) -> bool:
    return all(one[0] != other[0] for one, other in itertools.pairwise(words(text)))


def part_neighbours(text: str, pen: ReferenceWriter) -> str:
    """A word that begins as the one before it is replaced."""
    for index in range(1, len(spans(text))):
        found = words(text)
        if found[index][0] == found[index - 1][0]:
            near = {found[index - 1][0], (found[index + 1] if index + 1 < len(found) else " ")[0]}
            word = pen.word("adjective", begins_outside(near))
            text = swap(text, spans(text)[index], word)
    return text


def is_title(word: str) -> bool:
    return word[0] == word[0].upper() and word[1:] == word[1:].lower()


def to_title(text: str, pen: ReferenceWriter) -> str:
    return WORD.sub(lambda found: found[0][0].upper() + found[0][1:].lower(), text)


def capitals(text: str) -> int:
    return sum(len(word) > 1 and word.isupper() for word in WORD.findall(text))


def add_capitals(text: str, pen: ReferenceWriter, n: int) -> str:
    while capitals(text) < n:
        plain = [(start, end) for start, end in pen.spots(text) if not text[start:end].isupper()]
        start, end = pen.choose(plain)
        text = text[:start] + text[start:end].upper() + text[end:]
    return text


def case_of(name: str, say: str, check: Any, repair: Any, params: Any = lambda rng: {}) -> Kind:
    return Kind(name, say, params, check, repair, Stage.case, aspects("case"))


def draw_vowels(rng: Any) -> Params:
    return {"vowels": rng.choice(("a, e and o", "a, e and i", "e, i and o", "a, i and e"))}


def other_vowels(word: str, vowels: str) -> set[str]:
    """Vowels of a text that are not among the given ones."""
    return (set(word.lower()) & VOWELS) - set(vowels.replace("and", ""))


KINDS = (
    Kind(
        "letter_at_least",
        'Use the letter "{letter}" at least {n} times.',
        draw_letter("bcdfghklmpvw", 4, 8),
        lambda text, letter, n: text.lower().count(letter) >= n,
        add_letter,
        Stage.words,
        aspects("letters"),
    ),
    Kind(
        "letter_at_most",
        'Use the letter "{letter}" at most {n} times.',
        draw_letter("acdghilmnou", 1, 4),
        lambda text, letter, n: text.lower().count(letter) <= n,
        lambda text, pen, letter, n: text,
        Stage.words,
        aspects("letters"),
        limits_words=True,
        allows=lambda word, letter, n: letter not in word,
    ),
    Kind(
        "letter_forbidden",
        'Do not use the letter "{letter}" anywhere.',
        lambda rng: {"letter": rng.choice("abcdfghiklmopuvwy")},
        lambda text, letter: letter not in text.lower(),
        lambda text, pen, letter: text,
        Stage.words,
        aspects("letters"),
        limits_words=True,
        allows=lambda word, letter: letter not in word,
    ),
    Kind(
        "three_vowels",
        "Of the vowels a, e, i, o, u use only {vowels}.",
        draw_vowels,
        lambda text, vowels: not other_vowels(text, vowels),
        lambda text, pen, vowels: text,
        Stage.words,
        aspects("letters"),
        limits_words=True,
        allows=lambda word, vowels: not other_vowels(word, vowels),
    ),
    Kind(
        "word_length_at_most",
        "No word may have more than {n} letters.",
        lambda rng: {"n": rng.randint(5, 8)},
        lambda text, n: all(len(word) <= n for word in words(text)),
        lambda text, pen, n: text,
        Stage.words,
        aspects("letters"),
        limits_words=True,
        allows=lambda word, n: len(word) <= n,
    ),
    Kind(
        "word_length_at_least",
        "No word may have fewer than {n} letters.",
        lambda rng: {"n": rng.randint(3, 5)},
        lambda text, n: all(len(word) >= n for word in words(text)),
        lambda text, pen, n: text,
        Stage.words,
        aspects("letters"),
        limits_words=True,
        allows=lambda word, n: len(word) >= n,
    ),
    Kind(
        "alliteration",
        'Use at least {n} words in a row that begin with the letter "{letter}".',
        draw_letter("bcfgmpst", 3, 4),
        has_run,
        add_run,
        Stage.words,
        aspects("initials letters"),
    ),
    Kind(
        "neighbours_differ",
        "No two neighboring words may begin with the same letter.",
        lambda rng: {},
        neighbours_differ,
        part_neighbours,
        Stage.counts,
        aspects("initials letters repeat"),
        limits_words=True,
    ),
    case_of(
        "all_lower",
        "Write in lower case only, without capital letters.",
        lambda text: text == text.lower(),
        lambda text, pen: text.lower(),
    ),
    case_of(
        "all_upper",
        "Write in CAPITAL LETTERS only.",
        lambda text: text == text.upper(),
        lambda text, pen: text.upper(),
    ),
    case_of(
        "title_case",
        "Begin Every Word With A Capital Letter, And Use No Other Capital Letters.",
        lambda text: all(is_title(word) for word in WORD.findall(text)),
        to_title,
    ),
    case_of(
        "capital_words",
        "Write at least {n} words of two or more letters in CAPITAL LETTERS.",
        lambda text, n: capitals(text) >= n,
        add_capitals,
        lambda rng: {"n": rng.randint(2, 4)},
    ),
)
