"""Constraints on how much is written: words, characters, sentences, lines and paragraphs."""

from __future__ import annotations

import random
from collections.abc import Callable

from rlhf_lab.tasks.constraints.constraint_types import (
    ConstraintType,
    Count,
    Params,
    Stage,
    at_least,
    at_most,
    draw_n,
    exactly,
)
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import STOP, lines, paragraphs, sentences, words


def draw_range(rng: random.Random) -> Params:
    low = rng.randint(18, 50)
    return {"low": low, "high": low + rng.choice((8, 12, 16))}


def num_words(text: str) -> int:
    return len(words(text))


def num_vowels(text: str) -> int:
    return sum(letter in "aeiou" for letter in text.lower())


def num_sentences(text: str) -> int:
    return len(sentences(text))


def resize(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    """Add or remove words until their number is in range."""
    while num_words(text) < low:
        text = writer.add_word(text)
    while num_words(text) > high:
        text = writer.remove_word(text)
    return text


def resize_to_multiple(text: str, writer: ReferenceWriter, n: int) -> str:
    total = -(-num_words(text) // n) * n
    return resize(text, writer, total, total)


def shorten(text: str, writer: ReferenceWriter, n: int) -> str:
    while len(text.strip()) > n:
        text = writer.remove_word(text)
    return text


def add_vowels(text: str, writer: ReferenceWriter, n: int) -> str:
    while num_vowels(text) < n:
        text = writer.add_word(text)
    return text


def resize_sentences(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    """Add sentences after the first, or join some."""
    while num_sentences(text) < low:
        text = writer.add_sentence(text)
    while num_sentences(text) > high:
        inner = [stop for stop in STOP.finditer(text) if text[stop.end() :].strip()]
        stop = writer.choose(inner)
        rest = text[stop.end() :].lstrip()
        text = f"{text[: stop.start()]} {writer.word('link')} {rest[0].lower()}{rest[1:]}"
    return text


def split_long_sentences(text: str, writer: ReferenceWriter, n: int) -> str:
    """Split every sentence that is too long in its middle."""
    for sentence in sentences(text):
        if num_words(sentence) > n:
            pieces = sentence.split(" ")
            half = len(pieces) // 2
            rest = " ".join(pieces[half:])
            whole = f"{' '.join(pieces[:half]).rstrip(',;')}. {rest[0].upper()}{rest[1:]}"
            text = text.replace(sentence, whole)
    return text


def grows_by_line(text: str, n: int) -> bool:
    sizes = [num_words(line) for line in lines(text)]
    return sizes == list(range(sizes[0], sizes[0] + n)) and sizes[0] > 0


def write_growing_lines(text: str, writer: ReferenceWriter, n: int) -> str:
    return "\n".join(writer.sentence(3 + index) for index in range(n))


def join_parts(mark: str) -> Callable[[str, ReferenceWriter, int, int], str]:
    """The repair that writes as many parts as needed, with the mark between them."""
    return lambda text, writer, low, high: mark.join(writer.parts(text, low))


LINED = "layout lines"
WORDS = Count(num_words, resize, Stage.counts, "words", is_word_count=True)
SENTENCES = Count(num_sentences, resize_sentences, Stage.words, "sentences", is_part_count=True)
PARAGRAPHS = Count(
    lambda text: len(paragraphs(text)), join_parts("\n\n"), Stage.layout, is_part_count=True
)
LINES = Count(lambda text: len(lines(text)), join_parts("\n"), Stage.layout, is_part_count=True)
TYPES = (
    WORDS.limited("words_at_least", "Use at least {n} words.", at_least(20, 60)),
    WORDS.limited("words_at_most", "Use at most {n} words.", at_most(20, 50)),
    ConstraintType(
        "words_between",
        "Use between {low} and {high} words.",
        lambda text, low, high: low <= num_words(text) <= high,
        resize,
        draw_range,
        Stage.counts,
        "words",
        draft_words=lambda low, high: (low + high) // 2,
    ),
    WORDS.limited("words_exactly", "Use exactly {n} words.", exactly(15, 45)),
    ConstraintType(
        "words_multiple",
        "The number of words must be a multiple of {n}.",
        lambda text, n: num_words(text) % n == 0,
        resize_to_multiple,
        draw_n(3, 9),
        Stage.counts,
        "words",
    ),
    ConstraintType(
        "characters_at_most",
        "Use at most {n} characters, spaces included.",
        lambda text, n: len(text) <= n,
        shorten,
        lambda rng: {"n": rng.randrange(140, 301, 10)},
        Stage.counts,
        "words",
        draft_words=lambda n: n // 8,
    ),
    ConstraintType(
        "vowels_at_least",
        "Use at least {n} vowels (a, e, i, o, u).",
        lambda text, n: num_vowels(text) >= n,
        add_vowels,
        draw_n(40, 90),
        Stage.counts,
        "words",
        draft_words=lambda n: n // 2,
    ),
    SENTENCES.limited("sentences_at_least", "Write at least {n} sentences.", at_least(3, 6)),
    SENTENCES.limited("sentences_at_most", "Write at most {n} sentences.", at_most(2, 4), LINED),
    SENTENCES.limited("sentences_exactly", "Write exactly {n} sentences.", exactly(2, 6), LINED),
    ConstraintType(
        "sentence_words_at_most",
        "No sentence may have more than {n} words.",
        lambda text, n: all(num_words(sentence) <= n for sentence in sentences(text)),
        split_long_sentences,
        draw_n(7, 12),
        Stage.counts,
        "words sentences",
    ),
    PARAGRAPHS.limited(
        "paragraphs_exactly",
        "Write exactly {n} paragraphs, with a blank line between them.",
        exactly(2, 4),
        LINED,
    ),
    LINES.limited("lines_exactly", "Write exactly {n} lines.", exactly(2, 6), LINED),
    LINES.limited("lines_at_least", "Write at least {n} lines.", at_least(3, 6), "layout"),
    ConstraintType(
        "growing_lines",
        "Write exactly {n} lines, each with one word more than the line before.",
        grows_by_line,
        write_growing_lines,
        draw_n(3, 5),
        Stage.layout,
        "layout lines words sentences start end question exclamation",
        draft_sentences=lambda n: n,
    ),
)
