"""Constraints on how sentences and lines begin and end."""

from __future__ import annotations

from rlhf_lab.tasks.constraints.boundaries import begins_with, ends_with
from rlhf_lab.tasks.constraints.constraint_types import ConstraintType, Stage
from rlhf_lab.tasks.constraints.reference_writer import (
    ReferenceWriter,
    begins_in,
    begins_outside,
    swap,
)
from rlhf_lab.tasks.constraints.text import heads, lines, sentences, spans, split_tail, words

ACROSTICS = tuple("star moon path bird lamp rose home film goat wind coral beach stone".split())
FIRST_WORDS = tuple("perhaps today sometimes here clearly".split())
LAST_WORDS = tuple("home tonight forever together again".split())


def begin_sentences(text: str, writer: ReferenceWriter, word: str) -> str:
    first = word[0].upper() + word[1:]
    for start, end in reversed(heads(text)):
        if text[start:end].lower() != word:
            text = f"{text[:start]}{first} {text[start].lower()}{text[start + 1 :]}"
    return text


def initials(text: str) -> list[str]:
    return [words(sentence)[0][0] for sentence in sentences(text)]


def replace_same_initials(text: str, writer: ReferenceWriter) -> str:
    for index in range(len(heads(text))):
        used = initials(text)
        if used[index] in used[:index]:
            word = writer.word("adjective", begins_outside(used))
            text = swap(text, heads(text)[index], word)
    return text


def end_lines(text: str, writer: ReferenceWriter, word: str, n: int) -> str:
    parts = writer.parts(text, n) if len(lines(text)) != n else lines(text)
    return "\n".join(
        part if ends_with(part, word) else f"{split_tail(part)[0]} {word}." for part in parts
    )


def write_acrostic(text: str, writer: ReferenceWriter, word: str) -> str:
    """Write a line per letter, its first word replaced by one that begins with the letter."""
    parts = writer.parts(text, len(word))
    for index, letter in enumerate(word):
        first = writer.word("adjective", begins_in(letter))
        parts[index] = swap(parts[index], spans(parts[index])[0], first)
    return "\n".join(parts)


TYPES = (
    ConstraintType(
        "sentences_start_with",
        'Begin every sentence with the word "{word}".',
        lambda text, word: all(begins_with(sentence, word) for sentence in sentences(text)),
        begin_sentences,
        lambda rng: {"word": rng.choice(FIRST_WORDS)},
        aspects="start end initials repeat layout lines",
        brings_words=True,
    ),
    ConstraintType(
        "sentence_initials_differ",
        "Begin every sentence with another letter.",
        lambda text: len(set(initials(text))) == len(initials(text)),
        replace_same_initials,
        stage=Stage.counts,
        aspects="initials start",
    ),
    ConstraintType(
        "lines_end_with",
        'Write exactly {n} lines, each of which ends with the word "{word}".',
        lambda text, word, n: [ends_with(line, word) for line in lines(text)] == [True] * n,
        end_lines,
        lambda rng: {"word": rng.choice(LAST_WORDS), "n": rng.randint(2, 4)},
        Stage.layout,
        "layout lines end repeat sentences",
        brings_words=True,
        draft_sentences=lambda word, n: n,
    ),
    ConstraintType(
        "acrostic",
        'The first letters of the lines must spell the word "{word}".',
        lambda text, word: [words(line)[0][0] for line in lines(text) if words(line)] == list(word),
        write_acrostic,
        lambda rng: {"word": rng.choice(ACROSTICS)},
        Stage.layout,
        "layout lines start initials sentences letters",
        draft_sentences=lambda word: len(word),
    ),
)
