"""What a command prints while it works: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import rich.console

from rlhf_lab.runs.live.display import Display, RunDisplay
from rlhf_lab.runs.live.progress import Activity
from rlhf_lab.runs.live.texts import seconds_text as seconds_text
from rlhf_lab.runs.trackers.fitted_table import WHOLE, fitted_table, omission
from rlhf_lab.types.data import Clock


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
        options: dict[str, Any] = {
            **{"quiet": quiet, "force_terminal": self._is_live},
            **{"highlight": False, "markup": False, "emoji": False},
        }
        self._rich = rich.console.Console(**options)
        self._errors = rich.console.Console(**options, stderr=True)
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
        a stage or another phase, it stands in for what is shown of that."""
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
        if text := omission(hidden, remedy):
            self._rich.print(text)


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
