"""Kinds about the form of a text: lists, sections, parts, marked spans."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.length import draw_n
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.structure import joined
from rlhf_lab.tasks.constraints.text import lines

BULLET = re.compile(r"^[-*+]\s+\S")
NUMBERED = re.compile(r"^(\d{1,3})[.)]\s+\S")
HEADER = re.compile(r"^##\s+\S")
HIGHLIGHT = re.compile(r"(?<!\*)(\*{1,2})[^\s*](?:[^*\n]*[^\s*])?\1(?!\*)")
PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\w[^\[\]\n]*\]")
PARENTHESES = re.compile(r"\([^()\n]*\w[^()\n]*\)")


def matching(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line for line in lines(text) if pattern.match(line)]


def is_numbered(text: str, n: int) -> bool:
    found = [NUMBERED.match(line) for line in lines(text)]
    return [int(item.group(1)) for item in found if item] == list(range(1, n + 1))


def to_numbered(text: str, pen: ReferenceWriter, n: int) -> str:
    parts = enumerate(pen.parts(text, n), start=1)
    return "\n".join(f"{number}. {part}" for number, part in parts)


def num_sections(text: str) -> int:
    """Headings with a line of their own below them that is no heading."""
    found = [bool(HEADER.match(line)) for line in lines(text)]
    return sum(one and not other for one, other in itertools.pairwise(found))


def to_sections(text: str, pen: ReferenceWriter, n: int) -> str:
    heading = [f"## {pen.word('adjective').capitalize()} {pen.word('noun')}" for _ in range(n)]
    parts = zip(heading, pen.parts(text, n), strict=True)
    return "\n\n".join(f"{head}\n{part}" for head, part in parts)


def parted(text: str, rule: str) -> list[str]:
    """The parts between lines that are just the rule."""
    parts = re.split(rf"^[ \t]*{re.escape(rule)}[ \t]*$", text, flags=re.MULTILINE)
    return [part.strip() for part in parts]


def add_marked(pattern: re.Pattern[str], around: str) -> Callable[..., str]:
    """Mend by putting marks around words until n of them match."""

    def repair(text: str, pen: ReferenceWriter, n: int) -> str:
        while len(list(pattern.finditer(text))) < n:
            start, end = pen.spot(text)
            text = text[:start] + around.format(text[start:end]) + text[end:]
        return text

    return repair


def marked(name: str, say: str, pattern: re.Pattern[str], around: str) -> Kind:
    """A kind that wants at least n matches."""
    return Kind(
        name,
        say,
        draw_n(2, 3),
        lambda text, n: len(list(pattern.finditer(text))) >= n,
        add_marked(pattern, around),
        Stage.marks,
        aspects(name),
    )


def layout(name: str, say: str, check: Any, repair: Any, touches: str = "", low: int = 2) -> Kind:
    return Kind(
        name,
        say,
        draw_n(low, low + 3),
        check,
        repair,
        Stage.layout,
        aspects(f"layout {touches}"),
        pieces=lambda n: n,
    )


KINDS = (
    layout(
        "bullets",
        'Write a list of exactly {n} bullet points, each on a line that begins with "- ".',
        lambda text, n: len(matching(BULLET, text)) == n,
        lambda text, pen, n: "- " + "\n- ".join(pen.parts(text, n)),
        "quotes",
    ),
    layout(
        "numbered",
        'Write a numbered list of exactly {n} items: "1. ", "2. " and so on.',
        is_numbered,
        to_numbered,
        "quotes start digits letters",
    ),
    layout(
        "sections",
        'Write exactly {n} sections, each with a heading line that begins with "## ".',
        lambda text, n: num_sections(text) == n == len(matching(HEADER, text)),
        to_sections,
        "quotes sentences",
    ),
    Kind(
        "two_answers",
        "Give exactly two different answers with a line of six asterisks, ******, between them.",
        lambda rng: {},
        lambda text: (
            len(parts := parted(text, "******")) == 2 and all(parts) and parts[0] != parts[1]
        ),
        lambda text, pen: joined("\n******\n")(text, pen, 2),
        Stage.layout,
        aspects("layout lines highlights"),
        pieces=lambda: 2,
    ),
    layout(
        "divided",
        "Write exactly {n} parts with a line of three hyphens, ---, between them.",
        lambda text, n: len(parts := parted(text, "---")) == n and all(parts),
        joined("\n---\n"),
        "lines",
    ),
    marked(
        "highlights",
        "Highlight at least {n} parts with asterisks, as in *highlighted*.",
        HIGHLIGHT,
        "*{}*",
    ),
    marked(
        "placeholders",
        "Use at least {n} placeholders in square brackets, as in [name].",
        PLACEHOLDER,
        "[{}]",
    ),
    marked(
        "parentheses",
        "Use at least {n} remarks in parentheses.",
        PARENTHESES,
        "({})",
    ),
)
