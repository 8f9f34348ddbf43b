"""Constraints on letters, the length of words, and capitals."""

from __future__ import annotations

import itertools

from rlhf_lab.tasks.constraints.constraint_types import (
    ConstraintType,
    Count,
    Draw,
    Stage,
    at_least,
    draw_n,
    each_word,
    unchanged,
)
from rlhf_lab.tasks.constraints.reference_writer import (
    ReferenceWriter,
    begins_in,
    begins_outside,
    swap,
)
from rlhf_lab.tasks.constraints.text import WORD, spans, words

VOWELS = frozenset("aeiou")
VOWEL_SETS = ("a, e and o", "a, e and i", "e, i and o", "a, i and e")


def draw_letter(letters: str, low: int, high: int) -> Draw:
    """A letter, and how often it must or may occur."""
    return lambda rng: {"letter": rng.choice(letters), "n": rng.randint(low, high)}


def add_letter(text: str, writer: ReferenceWriter, letter: str, n: int) -> str:
    while text.lower().count(letter) < n:
        word = writer.word("noun", lambda word: letter in word)
        text = writer.insert(text, word, lambda word: letter not in word)
    return text


def has_run(text: str, letter: str, n: int) -> bool:
    """Whether n words in a row begin with the letter."""
    runs = itertools.groupby(words(text), key=lambda word: word.startswith(letter))
    return any(begins and len(list(run)) >= n for begins, run in runs)


def write_run(text: str, writer: ReferenceWriter, letter: str, n: int) -> str:
    """Replace n neighbouring words by such that begin with the letter."""
    free = writer.replaceable(text)
    runs = [
        free[i : i + n]
        for i in range(len(free) - n + 1)
        if all(a[1] + 1 == b[0] for a, b in itertools.pairwise(free[i : i + n]))
    ]
    chosen = writer.choose(runs)
    parts = ("adjective", "noun", "verb", "noun")
    for part, span in reversed(list(zip(parts, chosen, strict=False))):
        text = swap(text, span, writer.word(part, begins_in(letter)))
    return text


def neighbours_differ(text: str) -> bool:
    return all(one[0] != other[0] for one, other in itertools.pairwise(words(text)))


def replace_like_neighbours(text: str, writer: ReferenceWriter) -> str:
    """Replace every word that begins like the one before it."""
    for index in range(1, len(spans(text))):
        present = words(text)
        if present[index][0] == present[index - 1][0]:
            near = {word[0] for word in (present[index - 1], *present[index + 1 : index + 2])}
            word = writer.word("adjective", begins_outside(near))
            text = swap(text, spans(text)[index], word)
    return text


def is_title(text: str) -> bool:
    found = WORD.findall(text)
    return all(w[0] == w[0].upper() and w[1:] == w[1:].lower() for w in found)


def to_title(text: str, writer: ReferenceWriter) -> str:
    return WORD.sub(lambda found: found[0][0].upper() + found[0][1:].lower(), text)


def num_capital_words(text: str) -> int:
    return sum(len(word) > 1 and word.isupper() for word in WORD.findall(text))


def capitalise_words(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    while num_capital_words(text) < low:
        plain = [(a, b) for a, b in writer.replaceable(text) if not text[a:b].isupper()]
        start, end = writer.choose(plain)
        text = text[:start] + text[start:end].upper() + text[end:]
    return text


LIMITS_LETTERS = {"aspects": "letters", "limits_words": True}
TYPES = (
    ConstraintType(
        "letter_at_least",
        'Use the letter "{letter}" at least {n} times.',
        lambda text, letter, n: text.lower().count(letter) >= n,
        add_letter,
        draw_letter("bcdfghklmpvw", 4, 8),
        aspects="letters",
    ),
    ConstraintType(
        "letter_at_most",
        'Use the letter "{letter}" at most {n} times.',
        lambda text, letter, n: text.lower().count(letter) <= n,
        unchanged,
        draw_letter("acdghilmnou", 1, 4),
        aspects="letters",
        limits_words=True,
        allows=lambda word, letter, n: letter not in word,
    ),
    each_word(
        "letter_forbidden",
        'Do not use the letter "{letter}" anywhere.',
        lambda rng: {"letter": rng.choice("abcdfghiklmopuvwy")},
        lambda word, letter: letter not in word,
        **LIMITS_LETTERS,
    ),
    each_word(
        "three_vowels",
        "Of the vowels a, e, i, o, u use only {vowels}.",
        lambda rng: {"vowels": rng.choice(VOWEL_SETS)},
        lambda word, vowels: not set(word) & VOWELS - set(vowels.replace("and", "")),
        **LIMITS_LETTERS,
    ),
    each_word(
        "word_length_at_most",
        "No word may have more than {n} letters.",
        draw_n(5, 8),
        lambda word, n: len(word) <= n,
        **LIMITS_LETTERS,
    ),
    each_word(
        "word_length_at_least",
        "No word may have fewer than {n} letters.",
        draw_n(3, 5),
        lambda word, n: len(word) >= n,
        **LIMITS_LETTERS,
    ),
    ConstraintType(
        "alliteration",
        'Use at least {n} words in a row that begin with the letter "{letter}".',
        has_run,
        write_run,
        draw_letter("bcfgmpst", 3, 4),
        aspects="initials letters",
    ),
    ConstraintType(
        "neighbours_differ",
        "No two neighboring words may begin with the same letter.",
        neighbours_differ,
        replace_like_neighbours,
        stage=Stage.counts,
        aspects="initials letters repeat",
        limits_words=True,
    ),
    ConstraintType(
        "all_lower",
        "Write in lower case only, without capital letters.",
        lambda text: text == text.lower(),
        lambda text, writer: text.lower(),
        stage=Stage.case,
        aspects="case",
    ),
    ConstraintType(
        "all_upper",
        "Write in CAPITAL LETTERS only.",
        lambda text: text == text.upper(),
        lambda text, writer: text.upper(),
        stage=Stage.case,
        aspects="case",
    ),
    ConstraintType(
        "title_case",
        "Begin Every Word With A Capital Letter, And Use No Other Capital Letters.",
        is_title,
        to_title,
        stage=Stage.case,
        aspects="case",
    ),
    Count(num_capital_words, capitalise_words, Stage.case, "case").limited(
        "capital_words",
        "Write at least {n} words of two or more letters in CAPITAL LETTERS.",
        at_least(2, 4),
    ),
)
