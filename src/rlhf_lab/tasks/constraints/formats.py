"""Constraints on layout, on data for programs (JSON, CSV, a table), and on marks and digits."""

from __future__ import annotations

import csv
import itertools
import json
import random
import re

from rlhf_lab.tasks.constraints.constraint_types import (
    ConstraintType,
    Count,
    Params,
    Stage,
    at_least,
    draw_n,
    exactly,
)
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import STOP, WORD, lines

BULLET = re.compile(r"^[-*+]\s+\S")
NUMBERED = re.compile(r"^(\d{1,3})[.)]\s+\S")
HEADING = re.compile(r"^##\s+\S")
HIGHLIGHT = re.compile(r"(?<!\*)(\*{1,2})[^\s*](?:[^*\n]*[^\s*])?\1(?!\*)")
PLACEHOLDER = re.compile(r"\[[^\w\[\]\n]*+\w[^\[\]\n]*+\]")
PARENTHESES = re.compile(r"\([^\w()\n]*+\w[^()\n]*+\)")


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


def inner_mark(mark: str, aspect: str) -> Count:
    """A mark after words: inserted where there are too few, removed where there are too many."""

    def repair(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
        while text.count(mark) < low:
            free = [end for _, end in writer.replaceable(text) if text[end : end + 1] == " "]
            end = writer.choose(free)
            text = f"{text[:end]}{mark}{text[end:]}"
        while text.count(mark) > high:
            text = text.replace(mark, "", 1)
        return text

    return Count(lambda text: text.count(mark), repair, Stage.marks, aspect)


def end_mark(mark: str, aspect: str) -> Count:
    """A mark at the end of sentences, exchanged for full stops where the count demands it."""

    def repair(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
        while text.count(mark) > high:
            text = text.replace(mark, ".", 1)
        while text.count(mark) < low:
            stops = [stop.start() for stop in STOP.finditer(text) if stop[0] == "."]
            if stops:
                stop = writer.rng.choice(stops)
                text = text[:stop] + mark + text[stop + 1 :]
            else:
                text = writer.add_sentence(text, mark)
        return text

    return Count(lambda text: text.count(mark), repair, Stage.marks, aspect)


def num_digits(text: str) -> int:
    return len(re.findall(r"[0-9]", text))


def set_digits(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    """Insert one number with all missing digits, or remove digits from the front."""
    while num_digits(text) > high:
        text = re.sub(r"[0-9]", "", text, count=1)
    missing = low - num_digits(text)
    if not missing:
        return text
    number = writer.rng.randrange(10 ** (missing - 1), 10**missing)
    return writer.insert_and_keep(text, str(number))


COMMAS = inner_mark(",", "comma")
SEMICOLONS = inner_mark(";", "semicolon")
DIGITS = Count(num_digits, set_digits, Stage.words, "digits", brings_words=True)
QUESTIONS = end_mark("?", "question")
EXCLAMATIONS = end_mark("!", "exclamation")
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
    ConstraintType(
        "no_commas",
        "Use no commas.",
        lambda text: "," not in text,
        lambda text, writer: text.replace(",", ""),
        stage=Stage.marks,
        aspects="comma",
    ),
    COMMAS.limited("commas_exactly", "Use exactly {n} commas.", exactly(2, 4)),
    SEMICOLONS.limited("semicolons_exactly", "Use exactly {n} semicolons.", exactly(2, 3)),
    ConstraintType(
        "no_digits",
        "Use no digits.",
        lambda text: num_digits(text) == 0,
        lambda text, writer: set_digits(text, writer, 0, 0),
        aspects="digits",
    ),
    DIGITS.limited("digits_exactly", "Use exactly {n} digits.", exactly(3, 6)),
    QUESTIONS.limited("questions_exactly", "Use exactly {n} question marks.", exactly(2, 3)),
    EXCLAMATIONS.limited(
        "exclamations_exactly", "Use exactly {n} exclamation marks.", exactly(2, 3)
    ),
)
