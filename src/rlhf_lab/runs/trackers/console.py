"""What a command prints while it works: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import rich.console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rlhf_lab.runs.live.display import RunDisplay, repeating
from rlhf_lab.runs.live.lines import Pace, stage_line
from rlhf_lab.runs.live.progress import Activity
from rlhf_lab.runs.live.texts import numbers_text
from rlhf_lab.runs.live.texts import seconds_text as seconds_text
from rlhf_lab.runs.trackers.fitted_table import WHOLE, fitted_table, omission
from rlhf_lab.types.data import Clock

# How often it is checked whether a stage was silent for too long.
CHECK_SECONDS = 1.0


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
        self._is_quiet = quiet
        self._is_live = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._rich = rich.console.Console(
            quiet=quiet, force_terminal=self._is_live, highlight=False, markup=False, emoji=False
        )
        self._activity: Activity | None = None
        self._display: RunDisplay | None = None

    @contextmanager
    def run(self, folder: Path) -> Iterator[None]:
        """While the block runs, show the run in this folder, which this process writes; stages are
        parts of it."""
        self._activity = Activity(self._clock)
        shown = None if self._is_quiet else self._rich
        self._display = RunDisplay(folder, self._activity, shown, self._is_live, self._clock)
        try:
            with self._display.showing():
                yield
        finally:
            self._activity = self._display = None

    @contextmanager
    def stage(self, description: str, total: int) -> Iterator[Bar]:
        """Show the progress of `total` units of work while the block runs."""
        if self._activity is not None and self._display is not None:
            self._activity.begin(description, total)
            yield self._activity
            self._display.close_stage()
            self._activity.end()
            return
        if self._is_live:
            with live_progress(self._rich, self._clock) as progress:
                yield LiveBar(progress, progress.add_task(description, total=total, numbers=""))
            return
        bar = LineBar(self, description, total, self._clock)
        with repeating(bar.print_if_due, CHECK_SECONDS):
            yield bar
        bar.close()

    def print(self, text: str) -> None:
        """Print a line; above the bar, if there is one."""
        if self._activity is not None:
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


def live_progress(console: rich.console.Console, clock: Clock) -> Progress:
    """A bar with the counts, the time elapsed, the time left and the numbers."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        console=console,
        get_time=clock,
        # Drawing takes time from the run that is being measured.
        refresh_per_second=2,
    )


class LiveBar:
    """A bar that is redrawn in place."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, amount: int = 1, **numbers: float) -> None:
        self._progress.update(self._task, advance=amount)
        if numbers:
            self._progress.update(self._task, numbers=numbers_text(numbers))

    def enter(self, phase: str) -> None:
        """A bar shows no phases: stages of a run do."""


class LineBar:
    """Lines as Pace allows them, and one at the end. Another thread may print, too."""

    def __init__(self, console: Console, description: str, total: int, clock: Clock) -> None:
        self._console = console
        self._activity = Activity(clock)
        self._activity.begin(description, total)
        self._pace = Pace(clock)
        self._printed: int | None = None
        self._lock = threading.Lock()

    def advance(self, amount: int = 1, **numbers: float) -> None:
        self._activity.advance(amount, **numbers)
        self.print_if_due()

    def enter(self, phase: str) -> None:
        self._activity.enter(phase)

    def close(self) -> None:
        """Print where the work ended, unless the last line did."""
        with self._lock:
            if self._printed != self._activity.progress().done:
                self._print()

    def print_if_due(self) -> None:
        """Print a line, if it is time for one."""
        with self._lock:
            done = self._activity.progress().done
            if self._pace.is_due(has_advanced=done != (self._printed or 0)):
                self._print()

    def _print(self) -> None:
        progress = self._activity.progress()
        self._printed = progress.done
        self._pace.printed()
        self._console.print(stage_line(progress))


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
