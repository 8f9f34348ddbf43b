"""Constraints on the form of a text: lists, sections, parts, marked words."""

from __future__ import annotations

import itertools
import re

from rlhf_lab.tasks.constraints.constraint_types import (
    ConstraintType,
    Count,
    Stage,
    at_least,
    draw_n,
    exactly,
)
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import lines

BULLET = re.compile(r"^[-*+]\s+\S")
NUMBERED = re.compile(r"^(\d{1,3})[.)]\s+\S")
HEADING = re.compile(r"^##\s+\S")
HIGHLIGHT = re.compile(r"(?<!\*)(\*{1,2})[^\s*](?:[^*\n]*[^\s*])?\1(?!\*)")
PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\w[^\[\]\n]*\]")
PARENTHESES = re.compile(r"\([^()\n]*\w[^()\n]*\)")


def num_bullets(text: str) -> int:
    return sum(bool(BULLET.match(line)) for line in lines(text))


def write_bullets(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    return "\n".join(f"- {part}" for part in writer.parts(text, low))


def is_numbered(text: str, n: int) -> bool:
    matches = [NUMBERED.match(line) for line in lines(text)]
    return [int(item.group(1)) for item in matches if item] == list(range(1, n + 1))


def write_numbered(text: str, writer: ReferenceWriter, n: int) -> str:
    parts = enumerate(writer.parts(text, n), start=1)
    return "\n".join(f"{number}. {part}" for number, part in parts)


def has_sections(text: str, n: int) -> bool:
    """Whether there are n headings, each with a line below it that is no heading."""
    headings = [bool(HEADING.match(line)) for line in lines(text)]
    with_text = sum(one and not other for one, other in itertools.pairwise(headings))
    return with_text == n == sum(headings)


def write_sections(text: str, writer: ReferenceWriter, n: int) -> str:
    headings = [f"{writer.word('adjective').capitalize()} {writer.word('noun')}" for _ in range(n)]
    parts = zip(headings, writer.parts(text, n), strict=True)
    return "\n\n".join(f"## {heading}\n{part}" for heading, part in parts)


def split_at(text: str, rule: str) -> list[str]:
    """The parts between lines that hold only the rule."""
    parts = re.split(rf"^[ \t]*{re.escape(rule)}[ \t]*$", text, flags=re.MULTILINE)
    return [part.strip() for part in parts]


def is_divided(text: str, n: int) -> bool:
    return len(parts := split_at(text, "---")) == n and all(parts)


def has_two_answers(text: str) -> bool:
    parts = split_at(text, "******")
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def marked(pattern: re.Pattern[str], form: str, aspect: str) -> Count:
    """Matches of a pattern; the repair puts words into its form."""

    def count(text: str) -> int:
        return len(list(pattern.finditer(text)))

    def repair(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
        while count(text) < low:
            start, end = writer.draw_span(text)
            text = text[:start] + form.format(text[start:end]) + text[end:]
        return text

    return Count(count, repair, Stage.marks, aspect)


BULLETS = Count(num_bullets, write_bullets, Stage.layout, "layout quotes", is_part_count=True)
TYPES = (
    BULLETS.limited(
        "bullets",
        'Write a list of exactly {n} bullet points, each on a line that begins with "- ".',
        exactly(2, 5),
    ),
    ConstraintType(
        "numbered",
        'Write a numbered list of exactly {n} items: "1. ", "2. " and so on.',
        is_numbered,
        write_numbered,
        draw_n(2, 5),
        Stage.layout,
        "layout quotes start digits letters",
        draft_sentences=lambda n: n,
    ),
    ConstraintType(
        "sections",
        'Write exactly {n} sections, each with a heading line that begins with "## ".',
        has_sections,
        write_sections,
        draw_n(2, 5),
        Stage.layout,
        "layout quotes sentences",
        draft_sentences=lambda n: n,
    ),
    ConstraintType(
        "two_answers",
        "Give exactly two different answers with a line of six asterisks, ******, between them.",
        has_two_answers,
        lambda text, writer: "\n******\n".join(writer.parts(text, 2)),
        stage=Stage.layout,
        aspects="layout lines highlights",
        draft_sentences=lambda: 2,
    ),
    ConstraintType(
        "divided",
        "Write exactly {n} parts with a line of three hyphens, ---, between them.",
        is_divided,
        lambda text, writer, n: "\n---\n".join(writer.parts(text, n)),
        draw_n(2, 5),
        Stage.layout,
        "layout lines",
        draft_sentences=lambda n: n,
    ),
    marked(HIGHLIGHT, "*{}*", "highlights").limited(
        "highlights",
        "Highlight at least {n} parts with asterisks, as in *highlighted*.",
        at_least(2, 3),
    ),
    marked(PLACEHOLDER, "[{}]", "placeholders").limited(
        "placeholders",
        "Use at least {n} placeholders in square brackets, as in [name].",
        at_least(2, 3),
    ),
    marked(PARENTHESES, "({})", "parentheses").limited(
        "parentheses", "Use at least {n} remarks in parentheses.", at_least(2, 3)
    ),
)
