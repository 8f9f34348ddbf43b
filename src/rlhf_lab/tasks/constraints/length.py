"""Kinds about how much is written: words, characters, vowels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Params, Stage, aspects
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import words

VOWELS = "aeiou"


def draw_n(low: int, high: int) -> Callable[[Any], Params]:
    """A number, both ends among them."""
    return lambda rng: {"n": rng.randint(low, high)}


def draw_range(rng: Any) -> Params:
    low = rng.randint(18, 50)
    return {"low": low, "high": low + rng.choice((8, 12, 16))}


def resize(text: str, pen: ReferenceWriter, low: int, high: int) -> str:
    """Words come or go until their number is in range."""
    while len(words(text)) < low:
        text = pen.grow(text)
    while len(words(text)) > high:
        text = pen.cut(text)
    return text


def to_multiple(text: str, pen: ReferenceWriter, n: int) -> str:
    total = -(-len(words(text)) // n) * n
    return resize(text, pen, total, total)


def cut_to(text: str, pen: ReferenceWriter, n: int) -> str:
    while len(text.strip()) > n:
        text = pen.cut(text)
    return text


def num_vowels(text: str) -> int:
    return sum(letter in VOWELS for letter in text.lower())


def grow_vowels(text: str, pen: ReferenceWriter, n: int) -> str:
    while num_vowels(text) < n:
        text = pen.grow(text)
    return text


COUNT = aspects("words")
KINDS = (
    Kind(
        "words_at_least",
        "Use at least {n} words.",
        draw_n(20, 60),
        lambda text, n: len(words(text)) >= n,
        lambda text, pen, n: resize(text, pen, n, 10**6),
        Stage.counts,
        COUNT,
        size=lambda n: n + 3,
    ),
    Kind(
        "words_at_most",
        "Use at most {n} words.",
        draw_n(20, 50),
        lambda text, n: len(words(text)) <= n,
        lambda text, pen, n: resize(text, pen, 0, n),
        Stage.counts,
        COUNT,
        size=lambda n: n - 4,
    ),
    Kind(
        "words_between",
        "Use between {low} and {high} words.",
        draw_range,
        lambda text, low, high: low <= len(words(text)) <= high,
        resize,
        Stage.counts,
        COUNT,
        size=lambda low, high: (low + high) // 2,
    ),
    Kind(
        "words_exactly",
        "Use exactly {n} words.",
        draw_n(15, 45),
        lambda text, n: len(words(text)) == n,
        lambda text, pen, n: resize(text, pen, n, n),
        Stage.counts,
        COUNT,
        size=lambda n: n,
    ),
    Kind(
        "words_multiple",
        "The number of words must be a multiple of {n}.",
        draw_n(3, 9),
        lambda text, n: len(words(text)) % n == 0,
        to_multiple,
        Stage.counts,
        COUNT,
    ),
    Kind(
        "characters_at_most",
        "Use at most {n} characters, spaces included.",
        lambda rng: {"n": rng.randrange(140, 301, 10)},
        lambda text, n: len(text) <= n,
        cut_to,
        Stage.counts,
        COUNT,
        size=lambda n: n // 8,
    ),
    Kind(
        "vowels_at_least",
        "Use at least {n} vowels (a, e, i, o, u).",
        draw_n(40, 90),
        lambda text, n: num_vowels(text) >= n,
        grow_vowels,
        Stage.counts,
        COUNT,
        size=lambda n: n // 2,
    ),
)
