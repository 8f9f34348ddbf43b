"""Constraints on words that must or must not be in a text, on repeated words, and on spelling."""

from __future__ import annotations

import random

from rlhf_lab.tasks.constraints.constraint_types import (
    ConstraintType,
    Count,
    Params,
    Stage,
    at_least,
    each_word,
)
from rlhf_lab.tasks.constraints.reference_writer import (
    FORBIDDEN,
    KEYWORDS,
    PALINDROMES,
    ReferenceWriter,
    Span,
    Stuck,
    is_none_of,
    swap,
)
from rlhf_lab.tasks.constraints.text import sentences, spans, words
from rlhf_lab.tasks.constraints.text import words as words_of


def draw_words(rng: random.Random) -> Params:
    return {"words": rng.sample(KEYWORDS, rng.randint(1, 3))}


def draw_count(rng: random.Random) -> Params:
    return {"word": rng.choice(KEYWORDS), "n": rng.randint(2, 4)}


def count(text: str, word: str) -> int:
    return words_of(text).count(word)


def add_missing(text: str, writer: ReferenceWriter, words: list[str]) -> str:
    for word in words:
        if word not in words_of(text):
            text = writer.insert_and_keep(text, word)
    return text


def add_word(text: str, writer: ReferenceWriter, word: str, n: int) -> str:
    while count(text, word) < n:
        text = writer.insert_and_keep(text, word)
    return text


def are_in_order(text: str, words: list[str]) -> bool:
    present = words_of(text)
    return set(words) <= set(present) and sorted(words, key=present.index) == list(words)


def put_in_order(text: str, writer: ReferenceWriter, words: list[str]) -> str:
    """Replace the words by others wherever they stand, then insert them in their order."""
    for start, end in reversed(spans(text)):
        if text[start:end].lower() in words:
            text = swap(text, (start, end), writer.word("noun"))
    free = writer.replaceable(text)
    if len(free) < len(words):
        raise Stuck
    chosen = sorted(writer.rng.sample(free, len(words)))
    for span, word in reversed(list(zip(chosen, words, strict=True))):
        text = swap(text, span, word)
    return text


def is_in_sentence(text: str, word: str, n: int) -> bool:
    return word in words_of(" ".join(sentences(text)[n - 1 : n]))


def put_in_sentence(text: str, writer: ReferenceWriter, word: str, n: int) -> str:
    while len(sentences(text)) < n:
        text = writer.add_sentence(text)
    sentence = sentences(text)[n - 1]
    start = text.index(sentence)
    inside = [s for s in writer.replaceable(text) if start <= s[0] < start + len(sentence)]
    return swap(text, writer.choose(inside), word)


def put_at(text: str, writer: ReferenceWriter, word: str, n: int) -> str:
    while len(words_of(text)) < n:
        text = writer.add_word(text)
    return swap(text, spans(text)[n - 1], word)


def first_repeated(text: str) -> Span | None:
    """The span of the first word that was used before."""
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
        "keywords_present",
        "Use each of these words: {words}.",
        lambda text, words: set(words) <= set(words_of(text)),
        add_missing,
        draw_words,
        brings_words=True,
    ),
    each_word(
        "keywords_forbidden",
        "Use none of these words: {words}.",
        lambda rng: {"words": rng.sample(FORBIDDEN, rng.randint(2, 4))},
        lambda word, words: word not in words,
    ),
    ConstraintType(
        "keyword_at_least",
        'Use the word "{word}" at least {n} times.',
        lambda text, word, n: count(text, word) >= n,
        add_word,
        draw_count,
        aspects="keyword repeat",
        brings_words=True,
    ),
    ConstraintType(
        "keyword_exactly",
        'Use the word "{word}" exactly {n} times.',
        lambda text, word, n: count(text, word) == n,
        add_word,
        draw_count,
        aspects="keyword repeat",
        brings_words=True,
    ),
    ConstraintType(
        "keywords_in_order",
        "Use these words, the first time that each is used in this order: {words}.",
        are_in_order,
        put_in_order,
        lambda rng: {"words": rng.sample(KEYWORDS, 3)},
        aspects="keyword",
        brings_words=True,
    ),
    ConstraintType(
        "keyword_in_sentence",
        'Use the word "{word}" in sentence number {n}.',
        is_in_sentence,
        put_in_sentence,
        lambda rng: {"word": rng.choice(KEYWORDS), "n": rng.randint(2, 3)},
        aspects="keyword sentences layout lines start",
        brings_words=True,
    ),
    ConstraintType(
        "word_at_position",
        'Word number {n} must be "{word}".',
        lambda text, word, n: words_of(text)[n - 1 : n] == [word],
        put_at,
        lambda rng: {"word": rng.choice(KEYWORDS), "n": rng.randint(3, 8)},
        Stage.counts,
        "keyword start layout lines sentences",
        brings_words=True,
    ),
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
