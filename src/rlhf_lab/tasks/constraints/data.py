"""Constraints that demand data which a program can read: JSON, CSV, a Markdown table."""

from __future__ import annotations

import csv
import json
import random
import re

from rlhf_lab.tasks.constraints.constraint_types import ConstraintType, Params, Stage
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import WORD, lines

FENCED = re.compile(r"```(?:json|csv|markdown)?\n(.*)\n```", re.DOTALL)
JSON_KEYS = ("title", "answer", "summary", "details", "author", "subject")
COLUMNS = ("name", "size", "color", "place", "origin", "purpose")
RULE = re.compile(r"^\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?$")


def unfenced(text: str) -> str:
    """The text without a code block around all of it."""
    match = FENCED.fullmatch(text)
    return match.group(1) if match else text


def is_object(text: str, keys: list[str]) -> bool:
    """Whether the text is a JSON object with exactly these keys and a text at each."""
    try:
        value = json.loads(unfenced(text))
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(value, dict)
        and set(value) == set(keys)
        and all(isinstance(part, str) and WORD.search(part) for part in value.values())
    )


def write_object(text: str, writer: ReferenceWriter, keys: list[str]) -> str:
    return json.dumps(dict(zip(keys, writer.parts(text, len(keys)), strict=True)))


def has_rows(rows: list[list[str]], columns: list[str], n: int) -> bool:
    """Whether there are a header and n rows, without empty cells."""
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
    return has_rows(rows, columns, n)


def is_table(text: str, columns: list[str], n: int) -> bool:
    every = lines(unfenced(text))
    if len(every) < 2 or not RULE.match(every[1]):
        return False
    rows = [line.strip("|").split("|") for line in every[:1] + every[2:]]
    return has_rows(rows, columns, n)


def write_cells(writer: ReferenceWriter, columns: list[str], n: int) -> list[list[str]]:
    return [
        [f"{writer.word('adjective')} {writer.word('noun')}" for _ in columns] for _ in range(n)
    ]


def write_csv(text: str, writer: ReferenceWriter, columns: list[str], n: int) -> str:
    return "\n".join(",".join(row) for row in [columns, *write_cells(writer, columns, n)])


def write_table(text: str, writer: ReferenceWriter, columns: list[str], n: int) -> str:
    rows = [columns, ["---"] * len(columns), *write_cells(writer, columns, n)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw_columns(rng: random.Random) -> Params:
    return {"columns": rng.sample(COLUMNS, rng.randint(2, 3)), "n": rng.randint(2, 4)}


WHOLE = (
    "layout lines start end case wrap sentences question exclamation initials comma semicolon "
    "repeat keyword digits highlights placeholders parentheses"
)
TYPES = (
    ConstraintType(
        "json_object",
        "Answer with a JSON object only, with a text at each of these keys: {keys}.",
        is_object,
        write_object,
        lambda rng: {"keys": rng.sample(JSON_KEYS, 2)},
        Stage.layout,
        WHOLE,
        brings_words=True,
        draft_sentences=lambda keys: 4,
    ),
    ConstraintType(
        "csv_rows",
        "Answer with CSV only: a header with the columns {columns}, then exactly {n} rows.",
        is_csv,
        write_csv,
        draw_columns,
        Stage.layout,
        WHOLE,
        brings_words=True,
    ),
    ConstraintType(
        "markdown_table",
        "Answer with a Markdown table only: the columns {columns}, and exactly {n} rows.",
        is_table,
        write_table,
        draw_columns,
        Stage.layout,
        WHOLE,
        brings_words=True,
    ),
)
