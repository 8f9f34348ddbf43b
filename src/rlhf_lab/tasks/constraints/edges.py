"""Kinds about how sentences and lines begin and end."""

from __future__ import annotations

from rlhf_lab.tasks.constraints.boundaries import begins_with, ends_with
from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.reference_writer import (
    ReferenceWriter,
    begins_in,
    begins_outside,
    swap,
)
from rlhf_lab.tasks.constraints.text import heads, lines, sentences, spans, split_tail, words

ACROSTICS = tuple("star moon path bird lamp rose home film goat wind coral beach stone".split())
HEAD_WORDS = tuple("perhaps today sometimes here clearly".split())
LAST_WORDS = tuple("home tonight forever together again".split())


def begin_sentences(text: str, pen: ReferenceWriter, word: str) -> str:
    head = word[0].upper() + word[1:]
    for start, end in reversed(heads(text)):
        if text[start:end].lower() != word:
            text = f"{text[:start]}{head} {text[start].lower()}{text[start + 1 :]}"
    return text


def initials(text: str) -> list[str]:
    return [words(sentence)[0][0] for sentence in sentences(text)]


def part_initials(text: str, pen: ReferenceWriter) -> str:
    for index in range(len(heads(text))):
        used = initials(text)
        if used[index] in used[:index]:
            word = pen.word("adjective", begins_outside(used))
            text = swap(text, heads(text)[index], word)
    return text


def end_lines(text: str, pen: ReferenceWriter, word: str, n: int) -> str:
    parts = pen.parts(text, n) if len(lines(text)) != n else lines(text)
    return "\n".join(
        part if ends_with(part, word) else f"{split_tail(part)[0]} {word}." for part in parts
    )


def spell(text: str, pen: ReferenceWriter, word: str) -> str:
    """A part per letter, its first word replaced by one that begins with the letter."""
    found = pen.parts(text, len(word))
    for index, letter in enumerate(word):
        first = spans(found[index])[0]
        head = pen.word("adjective", begins_in(letter))
        found[index] = swap(found[index], first, head)
    return "\n".join(found)


KINDS = (
    Kind(
        "sentences_start_with",
        'Begin every sentence with the word "{word}".',
        lambda rng: {"word": rng.choice(HEAD_WORDS)},
        lambda text, word: all(begins_with(sentence, word) for sentence in sentences(text)),
        begin_sentences,
        Stage.words,
        aspects("start end initials repeat layout lines"),
        brings_words=True,
    ),
    Kind(
        "sentence_initials_differ",
        "Begin every sentence with another letter.",
        lambda rng: {},
        lambda text: len(set(initials(text))) == len(initials(text)),
        part_initials,
        Stage.counts,
        aspects("initials start"),
    ),
    Kind(
        "lines_end_with",
        'Write exactly {n} lines, each of which ends with the word "{word}".',
        lambda rng: {"word": rng.choice(LAST_WORDS), "n": rng.randint(2, 4)},
        lambda text, word, n: (
            len(lines(text)) == n and all(ends_with(line, word) for line in lines(text))
        ),
        end_lines,
        Stage.layout,
        aspects("layout lines end repeat sentences"),
        brings_words=True,
        pieces=lambda word, n: n,
    ),
    Kind(
        "acrostic",
        'The first letters of the lines must spell the word "{word}".',
        lambda rng: {"word": rng.choice(ACROSTICS)},
        lambda text, word: [words(line)[0][0] for line in lines(text) if words(line)] == list(word),
        spell,
        Stage.layout,
        aspects("layout lines start initials sentences letters"),
        pieces=lambda word: len(word),
    ),
)
