"""Kinds about the number and the length of sentences, lines and paragraphs."""

from __future__ import annotations

from collections.abc import Callable

from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.length import COUNT, draw_n
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import STOP, lines, paragraphs, sentences, words


def to_sentences(text: str, pen: ReferenceWriter, low: int, high: int) -> str:
    """Sentences are added after the first, or joined."""
    while len(sentences(text)) < low:
        text = pen.add_sentence(text)
    while len(sentences(text)) > high:
        inner = [stop for stop in STOP.finditer(text) if text[stop.end() :].strip()]
        stop = pen.choose(inner)
        rest = text[stop.end() :].lstrip()
        text = f"{text[: stop.start()]} {pen.word('link')} {rest[0].lower()}{rest[1:]}"
    return text


def split_long(text: str, pen: ReferenceWriter, n: int) -> str:
    """Sentences that are too long end in their middle, and go on as another."""
    for sentence in sentences(text):
        if len(words(sentence)) > n:
            pieces = sentence.split(" ")
            half = len(pieces) // 2
            rest = " ".join(pieces[half:])
            whole = f"{' '.join(pieces[:half]).rstrip(',;')}. {rest[0].upper()}{rest[1:]}"
            text = text.replace(sentence, whole)
    return text


def grow_by_line(text: str, pen: ReferenceWriter, n: int) -> str:
    return "\n".join(pen.sentence(3 + index) for index in range(n))


def line_sizes(text: str) -> list[int]:
    return [len(words(line)) for line in lines(text)]


def joined(mark: str) -> Callable[..., str]:
    """Mend by writing n parts with the mark between them."""
    return lambda text, pen, n: mark.join(pen.parts(text, n))


LINES = aspects("layout lines")
KINDS = (
    Kind(
        "sentences_at_least",
        "Write at least {n} sentences.",
        draw_n(3, 6),
        lambda text, n: len(sentences(text)) >= n,
        lambda text, pen, n: to_sentences(text, pen, n, 10**6),
        Stage.words,
        aspects("sentences"),
        pieces=lambda n: n,
    ),
    Kind(
        "sentences_at_most",
        "Write at most {n} sentences.",
        draw_n(2, 4),
        lambda text, n: len(sentences(text)) <= n,
        lambda text, pen, n: to_sentences(text, pen, 1, n),
        Stage.words,
        LINES | {"sentences"},
        pieces=lambda n: n,
    ),
    Kind(
        "sentences_exactly",
        "Write exactly {n} sentences.",
        draw_n(2, 6),
        lambda text, n: len(sentences(text)) == n,
        lambda text, pen, n: to_sentences(text, pen, n, n),
        Stage.words,
        LINES | {"sentences"},
        pieces=lambda n: n,
    ),
    Kind(
        "sentence_words_at_most",
        "No sentence may have more than {n} words.",
        draw_n(7, 12),
        lambda text, n: all(len(words(sentence)) <= n for sentence in sentences(text)),
        split_long,
        Stage.counts,
        COUNT | {"sentences"},
    ),
    Kind(
        "paragraphs_exactly",
        "Write exactly {n} paragraphs, with a blank line between them.",
        draw_n(2, 4),
        lambda text, n: len(paragraphs(text)) == n,
        joined("\n\n"),
        Stage.layout,
        LINES,
        pieces=lambda n: n,
    ),
    Kind(
        "lines_exactly",
        "Write exactly {n} lines.",
        draw_n(2, 6),
        lambda text, n: len(lines(text)) == n,
        joined("\n"),
        Stage.layout,
        LINES,
        pieces=lambda n: n,
    ),
    Kind(
        "lines_at_least",
        "Write at least {n} lines.",
        draw_n(3, 6),
        lambda text, n: len(lines(text)) >= n,
        joined("\n"),
        Stage.layout,
        aspects("layout"),
        pieces=lambda n: n,
    ),
    Kind(
        "growing_lines",
        "Write exactly {n} lines, each with one word more than the line before.",
        draw_n(3, 5),
        lambda text, n: (
            (sizes := line_sizes(text)) == list(range(sizes[0], sizes[0] + n)) and sizes[0] > 0
        ),
        grow_by_line,
        Stage.layout,
        LINES | COUNT | {"sentences", "start", "end", "question", "exclamation"},
        pieces=lambda n: n,
    ),
)
