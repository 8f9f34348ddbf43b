"""Kinds about given words: whether they are used, how often and where."""

from __future__ import annotations

from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Params, Stage, aspects
from rlhf_lab.tasks.constraints.lexicon import FORBIDDEN, KEYWORDS
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter, Stuck, swap
from rlhf_lab.tasks.constraints.text import sentences, spans, words


def draw_words(rng: Any) -> Params:
    return {"words": rng.sample(KEYWORDS, rng.randint(1, 3))}


def draw_count(rng: Any) -> Params:
    return {"word": rng.choice(KEYWORDS), "n": rng.randint(2, 4)}


def add_words(text: str, pen: ReferenceWriter, words: list[str]) -> str:
    for word in words:
        if not has(text, word):
            text = pen.keep(text, word)
    return text


def has(text: str, *wanted: str) -> bool:
    return set(wanted) <= set(words(text))


def add_word(text: str, pen: ReferenceWriter, word: str, n: int) -> str:
    while words(text).count(word) < n:
        text = pen.keep(text, word)
    return text


def are_in_order(text: str, words: list[str]) -> bool:
    found = split(text)
    return all(word in found for word in words) and sorted(words, key=found.index) == list(words)


def split(text: str) -> list[str]:
    return words(text)


def put_in_order(text: str, pen: ReferenceWriter, words: list[str]) -> str:
    """In places that follow each other; where they stood out of order, other words go."""
    for start, end in reversed(spans(text)):
        if text[start:end].lower() in words:
            text = swap(text, (start, end), pen.word("noun"))
    places = pen.spots(text)
    if len(places) < len(words):
        raise Stuck
    chosen = sorted(pen.rng.sample(places, len(words)))
    for span, word in reversed(list(zip(chosen, words, strict=True))):
        text = swap(text, span, word)
    return text


def is_in_sentence(text: str, word: str, n: int) -> bool:
    found = sentences(text)
    return len(found) >= n and has(found[n - 1], word)


def put_in_sentence(text: str, pen: ReferenceWriter, word: str, n: int) -> str:
    while len(sentences(text)) < n:
        text = pen.add_sentence(text)
    sentence = sentences(text)[n - 1]
    start = text.index(sentence)
    found = [span for span in pen.spots(text) if start <= span[0] < start + len(sentence)]
    return swap(text, pen.choose(found), word)


def put_at(text: str, pen: ReferenceWriter, word: str, n: int) -> str:
    while len(words(text)) < n:
        text = pen.grow(text)
    return swap(text, spans(text)[n - 1], word)


KINDS = (
    Kind(
        "keywords_present",
        "Use each of these words: {words}.",
        draw_words,
        lambda text, words: has(text, *words),
        add_words,
        Stage.words,
        brings_words=True,
    ),
    Kind(
        "keywords_forbidden",
        "Use none of these words: {words}.",
        lambda rng: {"words": rng.sample(FORBIDDEN, rng.randint(2, 4))},
        lambda text, words: not set(split(text)) & set(words),
        lambda text, pen, words: text,
        Stage.words,
        allows=lambda word, words: word not in words,
    ),
    Kind(
        "keyword_at_least",
        'Use the word "{word}" at least {n} times.',
        draw_count,
        lambda text, word, n: words(text).count(word) >= n,
        add_word,
        Stage.words,
        aspects("keyword repeat"),
        brings_words=True,
    ),
    Kind(
        "keyword_exactly",
        'Use the word "{word}" exactly {n} times.',
        draw_count,
        lambda text, word, n: words(text).count(word) == n,
        add_word,
        Stage.words,
        aspects("keyword repeat"),
        brings_words=True,
    ),
    Kind(
        "keywords_in_order",
        "Use these words, the first time that each is used in this order: {words}.",
        lambda rng: {"words": rng.sample(KEYWORDS, 3)},
        are_in_order,
        put_in_order,
        Stage.words,
        aspects("keyword"),
        brings_words=True,
    ),
    Kind(
        "keyword_in_sentence",
        'Use the word "{word}" in sentence number {n}.',
        lambda rng: {"word": rng.choice(KEYWORDS), "n": rng.randint(2, 3)},
        is_in_sentence,
        put_in_sentence,
        Stage.words,
        aspects("keyword sentences layout lines start"),
        brings_words=True,
    ),
    Kind(
        "word_at_position",
        'Word number {n} must be "{word}".',
        lambda rng: {"word": rng.choice(KEYWORDS), "n": rng.randint(3, 8)},
        lambda text, word, n: words(text)[n - 1 : n] == [word],
        put_at,
        Stage.counts,
        aspects("keyword start layout lines sentences"),
        brings_words=True,
    ),
)
