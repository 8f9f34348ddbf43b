"""Constraints on how texts, sentences and lines begin and end, and on what surrounds them."""

from __future__ import annotations

import random
import re

from rlhf_lab.tasks.constraints.constraint_types import ConstraintType, Draw, Params, Stage
from rlhf_lab.tasks.constraints.reference_writer import (
    CLOSING_PHRASES,
    OPENING_PHRASES,
    ReferenceWriter,
    begins_in,
    begins_outside,
    swap,
)
from rlhf_lab.tasks.constraints.text import heads, lines, sentences, spans, split_tail, words

TITLE = re.compile(r"<<[^\w<>\n]*+\w[^<>\n]*+>>")
FENCE = re.compile(r"```[^\n`]*\n(.*)\n```", re.DOTALL)


def begins_with(text: str, phrase: str) -> bool:
    """Whether these are the first words, regardless of case and of marks before them."""
    return words(text)[: len(words(phrase))] == words(phrase)


def ends_with(text: str, phrase: str) -> bool:
    return words(text)[-len(words(phrase)) :] == words(phrase)


def add_opening(text: str, writer: ReferenceWriter, phrase: str) -> str:
    start, _ = spans(text)[0]
    return f"{text[:start]}{phrase} {text[start].lower()}{text[start + 1 :]}"


def add_title(text: str, writer: ReferenceWriter) -> str:
    adjective, noun = (writer.word(part).capitalize() for part in ("adjective", "noun"))
    return f"<<{adjective} {noun}>>\n{text}"


def end_as_question(text: str, writer: ReferenceWriter) -> str:
    body, tail = split_tail(text)
    marked = re.sub(r"[.!]", "?", tail, count=1)
    return body + (marked if "?" in marked else f"?{tail}")


def has_postscript(text: str) -> bool:
    return bool(re.match(r"P\.\s?S\.\W*+\w", lines(text)[-1], re.IGNORECASE))


def repeat_first_word(text: str, writer: ReferenceWriter) -> str:
    """Replace the last word by the first."""
    first, last = spans(text)[0], spans(text)[-1]
    return swap(text, last, text[first[0] : first[1]].lower())


def draw_phrase(phrases: tuple[str, ...]) -> Draw:
    def draw(rng: random.Random) -> Params:
        return {"phrase": rng.choice(phrases)}

    return draw


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
        "starts_with",
        'Begin with the words "{phrase}".',
        begins_with,
        add_opening,
        draw_phrase(OPENING_PHRASES),
        aspects="start",
        brings_words=True,
    ),
    ConstraintType(
        "ends_with",
        'End with the words "{phrase}".',
        ends_with,
        lambda text, writer, phrase: writer.add_ending(text, phrase),
        draw_phrase(CLOSING_PHRASES),
        aspects="end",
        brings_words=True,
    ),
    ConstraintType(
        "quoted",
        "Put the whole answer in double quotation marks.",
        lambda text: len(text) > 2 and text[0] == text[-1] == '"',
        lambda text, writer: f'"{text}"',
        stage=Stage.frame,
        aspects="wrap quotes",
    ),
    ConstraintType(
        "fenced",
        "Put the whole answer in a code block of three backticks.",
        lambda text: FENCE.fullmatch(text) is not None and text.count("```") == 2,
        lambda text, writer: f"```\n{text}\n```",
        stage=Stage.frame,
        aspects="wrap lines",
    ),
    ConstraintType(
        "postscript",
        'Add a postscript at the end: a last line that begins with "P.S.".',
        has_postscript,
        lambda text, writer: f"{text}\n\nP.S. {writer.sentence(4)}",
        aspects="end lines",
        brings_words=True,
    ),
    ConstraintType(
        "title",
        "Give a title in double angle brackets, as in <<title>>.",
        lambda text: TITLE.search(text) is not None,
        add_title,
        aspects="start lines sentences",
    ),
    ConstraintType(
        "repeat_request",
        'First repeat this sentence word for word: "{request}" Then answer it.',
        lambda text, request: begins_with(text, request) and len(words(text)) > len(words(request)),
        lambda text, writer, request: f"{request}\n\n{text}",
        aspects="start lines repeat letters",
        brings_words=True,
        takes_request=True,
    ),
    ConstraintType(
        "ends_with_question",
        "End with a question mark.",
        lambda text: text.rstrip("\"'`*)] \n").endswith("?"),
        end_as_question,
        stage=Stage.marks,
        aspects="end question exclamation",
    ),
    ConstraintType(
        "first_word_last",
        "The last word must be the same as the first.",
        lambda text: len(words(text)) > 1 and words(text)[0] == words(text)[-1],
        repeat_first_word,
        stage=Stage.counts,
        aspects="start end repeat layout initials",
    ),
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
