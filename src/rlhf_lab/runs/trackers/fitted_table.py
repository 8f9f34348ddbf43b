"""Tables that fit a terminal: numbers are whole, names lose their middle, columns may go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import rich.box
from rich.table import Table

GAP = 2
# Counted by rich for the padding of the last column, which it does not draw.
EDGE = 1
# Least width of a column whose cells may be shortened, and of one whose cells may be wrapped.
NAME_WIDTH = 20
PROSE_WIDTH = 20
# Of a word that is never shortened, such as a state or a name of an algorithm.
WORD_WIDTH = 12
# A number with its unit, an interval, a count `3/40`, a range, a list of seeds, a date.
NUMBER = re.compile(r"[-+~<>]?\d[\w.%]*(?:[ \[\](),:/±+-]+[\w.%]*)*")
SEVERAL_WORDS = re.compile(r"\S\s+\S")
WHOLE = "a wider terminal or a pipe (`| cat`) shows all"


class Kind(Enum):
    """How a column gives way: not at all, by losing the middle of its cells, or by lines."""

    fixed = auto()
    label = auto()
    prose = auto()


@dataclass(frozen=True)
class Column:
    """A column of a table. least, most: widths between which it is drawn."""

    head: str
    kind: Kind
    least: int
    most: int


def column_of(head: str, cells: Sequence[str]) -> Column:
    """The kind and the widths of a column."""
    widest = max((len(cell) for cell in cells), default=0)
    word = max((len(part) for part in head.split()), default=0)
    if widest <= WORD_WIDTH or all(not cell or NUMBER.fullmatch(cell) for cell in cells):
        return Column(head, Kind.fixed, max(widest, word), max(widest, len(head)))
    is_prose = any(len(cell) > PROSE_WIDTH and SEVERAL_WORDS.search(cell) for cell in cells)
    kind, least = (Kind.prose, PROSE_WIDTH) if is_prose else (Kind.label, NAME_WIDTH)
    return Column(head, kind, max(word, min(least, widest)), max(widest, len(head)))


def fitted_table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    drop: Sequence[str] = (),
) -> tuple[Table, list[str]]:
    """A table no wider than `width` characters, and the heads of columns that it leaves out.

    drop: heads in the order in which their columns are left out where there is no room; then the
    other ones, the last first. The first column stays.
    """
    width -= EDGE
    flat = [[" ".join(cell.split()) for cell in row] for row in rows]
    columns = [column_of(head, [row[n] for row in flat]) for n, head in enumerate(heads)]
    shown = shown_columns(columns, width, drop)
    widths = widths_of([columns[n] for n in shown], width)
    table = Table(
        title=title,
        title_justify="left",
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
    )
    for number, cells in zip(shown, widths, strict=True):
        is_number = columns[number].kind is Kind.fixed and is_numeric([r[number] for r in flat])
        table.add_column(
            columns[number].head,
            width=cells,
            justify="right" if is_number else "left",
            overflow="fold",
        )
    for row in flat:
        drawn = zip(shown, widths, strict=True)
        table.add_row(*(cell_text(row[n], columns[n], cells) for n, cells in drawn))
    return table, [head for number, head in enumerate(heads) if number not in shown]


def shown_columns(columns: Sequence[Column], width: int, drop: Sequence[str]) -> list[int]:
    """The numbers of the columns that have room at their least widths."""
    shown = list(range(len(columns)))
    heads = [column.head for column in columns]
    last_first = [number for number in reversed(shown[1:]) if heads[number] not in drop]
    going = [heads.index(head) for head in drop if head in heads[1:]] + last_first
    for number in going:
        if sum(columns[n].least for n in shown) + GAP * (len(shown) - 1) <= width:
            break
        shown.remove(number)
    return shown


def widths_of(columns: Sequence[Column], width: int) -> list[int]:
    """The least widths, with the room that is left given to columns that can use it: whole names
    first, then heads on one line, then prose."""
    widths = [column.least for column in columns]
    left = width - sum(widths) - GAP * (len(columns) - 1)
    if left < 0:  # a single column
        return [min(widths[0], width)]
    first = [Kind.label, Kind.fixed, Kind.prose]
    order = sorted(range(len(columns)), key=lambda n: first.index(columns[n].kind))
    for number in order:
        more = min(left, columns[number].most - widths[number])
        widths[number] += more
        left -= more
    return widths


def cell_text(text: str, column: Column, width: int) -> str:
    """A cell as it is drawn: names, and what a lone column has no room for, lose their middle."""
    return text if column.kind is Kind.prose else elided(text, width)


def elided(text: str, width: int) -> str:
    """A text of at most `width` characters, with an ellipsis for its middle."""
    if len(text) <= width:
        return text
    end = max(0, width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def is_numeric(cells: Sequence[str]) -> bool:
    return any(cells) and all(not cell or NUMBER.fullmatch(cell) for cell in cells)


def omission(hidden: Sequence[str], remedy: str) -> str:
    """The line below a table that left columns out; "" if it has all."""
    return f"not shown: {', '.join(hidden)}; {remedy}" if hidden else ""
