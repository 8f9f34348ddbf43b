"""What a command prints while it works: a live display on a terminal, plain lines elsewhere.

Tables fit a terminal: numbers are whole, names lose their middle, columns may be left out.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

import rich.box
import rich.console
from rich.table import Table

from rlhf_lab.runs.live.display import Display, PlainScreen, RunDisplay
from rlhf_lab.runs.live.lines import seconds_text as seconds_text
from rlhf_lab.runs.live.progress import Activity
from rlhf_lab.types.data import Clock

GAP = 2
# Counted by rich for the padding of the last column, which it does not draw.
EDGE = 1
# Least width of a column with cells that may be shortened, and of one with wrapped cells.
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
    elided = auto()
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
    kind, least = (Kind.prose, PROSE_WIDTH) if is_prose else (Kind.elided, NAME_WIDTH)
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
        known = [row[number] for row in flat if row[number]]
        is_fixed = columns[number].kind is Kind.fixed
        is_number = is_fixed and bool(known) and all(map(NUMBER.fullmatch, known))
        table.add_column(
            columns[number].head,
            width=cells,
            justify="right" if is_number else "left",
            overflow="fold",
        )
    for row in flat:
        drawn = zip(shown, widths, strict=True)
        # Names, and what a lone column has no room for, lose their middle.
        table.add_row(
            *(
                row[n] if columns[n].kind is Kind.prose else elided(row[n], cells)
                for n, cells in drawn
            )
        )
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
    first = [Kind.elided, Kind.fixed, Kind.prose]
    order = sorted(range(len(columns)), key=lambda n: first.index(columns[n].kind))
    for number in order:
        more = min(left, columns[number].most - widths[number])
        widths[number] += more
        left -= more
    return widths


def elided(text: str, width: int) -> str:
    """A text of at most `width` characters, with an ellipsis for its middle."""
    if len(text) <= width:
        return text
    end = max(0, width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


class Bar(Protocol):
    """Shows how far a stage has come, with its latest numbers, and the phase that it is in."""

    def advance(self, amount: int = 1, **numbers: float) -> None: ...

    def enter(self, phase: str) -> None: ...


class Console:
    """Prints to standard output. quiet: nothing at all. Stages do not nest.

    is_terminal: None detects it. clock: tests pass their own.
    """

    def __init__(
        self, quiet: bool, is_terminal: bool | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._is_live = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._rich = PlainScreen(quiet=quiet, force_terminal=self._is_live)
        self._errors = PlainScreen(quiet=quiet, force_terminal=self._is_live, stderr=True)
        self._shows_runs = self._is_live or (is_terminal is None and self._rich.is_jupyter)
        self._shown = None if quiet else self._rich
        self._activity = Activity(clock)
        self._display: Display | None = None

    @contextmanager
    def run(self, folder: Path) -> Iterator[None]:
        """While the block runs, show the run in this folder, which this process writes; stages and
        phases are parts of it."""
        self._activity = Activity(self._clock)
        display = RunDisplay(folder, self._activity, self._shown, self._shows_runs, self._clock)
        with self._showing(display):
            yield

    @contextmanager
    def stage(self, description: str, total: int) -> Iterator[Bar]:
        """Show the progress of `total` units of work while the block runs."""
        with self._showing() as display, self._activity.within(""):
            self._activity.begin(description, total)
            try:
                yield self._activity
                display.close_stage()
            finally:
                self._activity.end()

    @contextmanager
    def phase(self, words: str) -> Iterator[None]:
        """Show what is done while the block runs, where nothing counts it, with the seconds. Within
        a stage or another phase, it replaces what is shown of that."""
        with self._showing(), self._activity.within(words):
            yield

    @contextmanager
    def _showing(self, display: Display | None = None) -> Iterator[Display]:
        """The display that is open already, or this one, or else one of work outside a run."""
        if self._display is not None:
            yield self._display
            return
        self._display = display or Display(
            self._activity, self._shown, self._is_live, self._clock, phases=self._errors
        )
        try:
            with self._display.showing():
                yield self._display
        finally:
            self._display = None

    def print(self, text: str) -> None:
        """Print a line; above the bar, if there is one."""
        self._activity.note(text)
        self._rich.print(text, soft_wrap=True)

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        drop: Sequence[str] = (),
        remedy: str = WHOLE,
    ) -> None:
        """Print rows of texts. Outside a terminal nothing is cut and every row is one line.

        drop: columns in the order in which a narrow terminal leaves them out. remedy: how to see
        them, for the line that names them.
        """
        if not self._is_live:
            self.print("\n".join([title, *aligned([columns, *rows])]))
            return
        table, hidden = fitted_table(title, columns, rows, self._rich.width, drop)
        self._rich.print(table)
        if hidden:
            self._rich.print(f"not shown: {', '.join(hidden)}; {remedy}")


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with columns of equal width."""
    flat = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in flat) for column in range(len(flat[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in flat
    ]
