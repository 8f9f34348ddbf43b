"""Kinds about how a text begins and ends, and what is around it."""

from __future__ import annotations

import re
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.lexicon import CLOSING_PHRASES, OPENING_PHRASES
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter, swap
from rlhf_lab.tasks.constraints.text import lines, spans, split_tail, words

TITLE = re.compile(r"<<[^<>\n]*\w[^<>\n]*>>")
FENCE = re.compile(r"```[^\n`]*\n(.*)\n```", re.DOTALL)


def begins_with(text: str, phrase: str) -> bool:
    """Whether these are the first words, whatever the marks before them and the case."""
    return words(text)[: len(words(phrase))] == words(phrase)


def begin(text: str, pen: ReferenceWriter, phrase: str) -> str:
    start, _ = spans(text)[0]
    return f"{text[:start]}{phrase} {text[start].lower()}{text[start + 1 :]}"


def ends_with(text: str, phrase: str) -> bool:
    return words(text)[-len(words(phrase)) :] == words(phrase)


def end_as_question(text: str, pen: ReferenceWriter) -> str:
    body, tail = split_tail(text)
    marked = re.sub(r"[.!]", "?", tail, count=1)
    return body + (marked if "?" in marked else f"?{tail}")


def has_postscript(text: str) -> bool:
    return bool(re.match(r"P\.\s?S\.\s*\W*\w", lines(text)[-1], re.IGNORECASE))


def repeat_head(text: str, pen: ReferenceWriter) -> str:
    """The last word becomes the first one again."""
    first, last = spans(text)[0], spans(text)[-1]
    return swap(text, last, text[first[0] : first[1]].lower())


def draw_phrase(phrases: tuple[str, ...]) -> Any:
    return lambda rng: {"phrase": rng.choice(phrases)}


KINDS = (
    Kind(
        "starts_with",
        'Begin with the words "{phrase}".',
        draw_phrase(OPENING_PHRASES),
        begins_with,
        begin,
        Stage.words,
        aspects("start"),
        brings_words=True,
    ),
    Kind(
        "ends_with",
        'End with the words "{phrase}".',
        draw_phrase(CLOSING_PHRASES),
        ends_with,
        lambda text, pen, phrase: pen.add_ending(text, phrase),
        Stage.words,
        aspects("end"),
        brings_words=True,
    ),
    Kind(
        "quoted",
        "Put the whole answer in double quotation marks.",
        lambda rng: {},
        lambda text: len(text) > 2 and text[0] == text[-1] == '"',
        lambda text, pen: f'"{text}"',
        Stage.frame,
        aspects("wrap quotes"),
    ),
    Kind(
        "fenced",
        "Put the whole answer in a code block of three backticks.",
        lambda rng: {},
        lambda text: FENCE.fullmatch(text) is not None and text.count("```") == 2,
        lambda text, pen: f"```\n{text}\n```",
        Stage.frame,
        aspects("wrap lines"),
    ),
    Kind(
        "postscript",
        'Add a postscript at the end: a last line that begins with "P.S.".',
        lambda rng: {},
        has_postscript,
        lambda text, pen: f"{text}\n\nP.S. {pen.sentence(4)}",
        Stage.words,
        aspects("end lines"),
        brings_words=True,
    ),
    Kind(
        "title",
        "Give a title in double angle brackets, as in <<title>>.",
        lambda rng: {},
        lambda text: TITLE.search(text) is not None,
        lambda text, pen: (
            f"<<{pen.word('adjective').capitalize()} {pen.word('noun').capitalize()}>>\n{text}"
        ),
        Stage.words,
        aspects("start lines sentences"),
    ),
    Kind(
        "repeat_request",
        'First repeat this sentence word for word: "{request}" Then answer it.',
        lambda rng: {},
        lambda text, request: begins_with(text, request) and len(words(text)) > len(words(request)),
        lambda text, pen, request: f"{request}\n\n{text}",
        Stage.words,
        aspects("start lines repeat letters"),
        brings_words=True,
        takes_request=True,
    ),
    Kind(
        "ends_with_question",
        "End with a question mark.",
        lambda rng: {},
        lambda text: text.rstrip("\"'`*)] \n").endswith("?"),
        end_as_question,
        Stage.marks,
        aspects("end question exclamation"),
    ),
    Kind(
        "first_word_last",
        "The last word must be the same as the first.",
        lambda rng: {},
        lambda text: len(words(text)) > 1 and words(text)[0] == words(text)[-1],
        repeat_head,
        Stage.counts,
        aspects("start end repeat layout initials"),
    ),
)
