"""Kinds that want data for a program: JSON, CSV, a table."""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Params, Stage, aspects
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import WORD, lines

FENCED = re.compile(r"```(?:json|csv|markdown)?\n(.*)\n```", re.DOTALL)
JSON_KEYS = ("title", "answer", "summary", "details", "author", "subject")
COLUMNS = ("name", "size", "color", "place", "origin", "purpose")
RULE = re.compile(r"^\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")


def unfenced(text: str) -> str:
    """The text without a code block around all of it."""
    found = FENCED.fullmatch(text)
    return found.group(1) if found else text


def is_object(text: str, keys: list[str]) -> bool:
    """Whether it is a JSON object with just these keys, and a text at each."""
    try:
        found = json.loads(unfenced(text))
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(found, dict)
        and set(found) == set(keys)
        and all(isinstance(value, str) and WORD.search(value) for value in found.values())
    )


def to_object(text: str, pen: ReferenceWriter, keys: list[str]) -> str:
    return json.dumps(dict(zip(keys, pen.parts(text, len(keys)), strict=True)))


def is_filled(rows: list[list[str]], columns: list[str], n: int) -> bool:
    """Whether a header and n rows are there, with no empty cell."""
    return (
        len(rows) == n + 1
        and [cell.strip().lower() for cell in rows[0]] == columns
        and all(len(row) == len(columns) and all(map(str.strip, row)) for row in rows)
    )


def is_csv(text: str, columns: list[str], n: int) -> bool:
    try:
        rows = [row for row in csv.reader(unfenced(text).splitlines(), strict=True) if row]
    except csv.Error:
        return False
    return is_filled(rows, columns, n)


def is_table(text: str, columns: list[str], n: int) -> bool:
    found = lines(unfenced(text))
    if len(found) < 2 or not RULE.match(found[1]):
        return False
    rows = [line.strip("|").split("|") for line in found[:1] + found[2:]]
    return is_filled(rows, columns, n)


def cells(pen: ReferenceWriter, columns: list[str], n: int) -> list[list[str]]:
    return [[f"{pen.word('adjective')} {pen.word('noun')}" for _ in columns] for _ in range(n)]


def to_csv(text: str, pen: ReferenceWriter, columns: list[str], n: int) -> str:
    return "\n".join(",".join(row) for row in [columns, *cells(pen, columns, n)])


def to_table(text: str, pen: ReferenceWriter, columns: list[str], n: int) -> str:
    rows = [columns, ["---"] * len(columns), *cells(pen, columns, n)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw_columns(rng: Any) -> Params:
    return {"columns": rng.sample(COLUMNS, rng.randint(2, 3)), "n": rng.randint(2, 4)}


WHOLE = aspects(
    "layout lines start end case wrap sentences question exclamation initials comma semicolon "
    "repeat keyword digits highlights placeholders parentheses"
)
KINDS = (
    Kind(
        "json_object",
        "Answer with a JSON object only, with a text at each of these keys: {keys}.",
        lambda rng: {"keys": rng.sample(JSON_KEYS, 2)},
        is_object,
        to_object,
        Stage.layout,
        WHOLE,
        brings_words=True,
        pieces=lambda keys: 4,
    ),
    Kind(
        "csv_rows",
        "Answer with CSV only: a header with the columns {columns}, then exactly {n} rows.",
        draw_columns,
        is_csv,
        to_csv,
        Stage.layout,
        WHOLE,
        brings_words=True,
    ),
    Kind(
        "markdown_table",
        "Answer with a Markdown table only: the columns {columns}, and exactly {n} rows.",
        draw_columns,
        is_table,
        to_table,
        Stage.layout,
        WHOLE,
        brings_words=True,
    ),
)
