"""What a command prints while it works: live bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

from rlhf_lab.runs.trackers.fitted_table import WHOLE, fitted_table, omission
from rlhf_lab.types.data import Clock

LINE_SECONDS = 10.0
LINE_SHARE = 0.05


class Bar(Protocol):
    """Shows how far a stage has come, with its latest numbers."""

    def advance(self, amount: int = 1, **numbers: float) -> None: ...


class Console:
    """Prints to standard output. quiet: nothing at all. Stages do not nest.

    is_terminal: None detects it. clock: tests pass their own.
    """

    def __init__(
        self, quiet: bool, is_terminal: bool | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._is_live = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._rich = rich.console.Console(
            quiet=quiet, force_terminal=self._is_live, highlight=False, markup=False, emoji=False
        )

    @contextmanager
    def stage(self, description: str, total: int) -> Iterator[Bar]:
        """Show the progress of `total` units of work while the block runs."""
        if self._is_live:
            with live_progress(self._rich, self._clock) as progress:
                yield LiveBar(progress, progress.add_task(description, total=total, numbers=""))
            return
        bar = LineBar(self, description, total, self._clock)
        yield bar
        bar.close()

    def print(self, text: str) -> None:
        """Print a line; above the bar, if there is one."""
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


class LineBar:
    """A line each 5% of the work, at most one per 10 seconds, and one at the end."""

    def __init__(self, console: Console, description: str, total: int, clock: Clock) -> None:
        self._console = console
        self._description = description
        self._total = total
        self._clock = clock
        self._started = self._printed_at = clock()
        self._printed = self._done = 0
        self._numbers: dict[str, float] = {}

    def advance(self, amount: int = 1, **numbers: float) -> None:
        self._done += amount
        self._numbers |= numbers
        is_far = self._done - self._printed >= LINE_SHARE * self._total
        if is_far and self._clock() - self._printed_at >= LINE_SECONDS:
            self._print()

    def close(self) -> None:
        """Print where the work ended, unless the last line did."""
        if not self._printed or self._printed < self._done:
            self._print()

    def _print(self) -> None:
        self._printed_at, self._printed = self._clock(), self._done
        passed = self._printed_at - self._started
        times = f"{seconds_text(passed)} elapsed"
        if 0 < self._done < self._total:
            left = passed / self._done * (self._total - self._done)
            times += f", {seconds_text(left)} left"
        line = f"{self._description}: {self._done}/{self._total}, {times}"
        self._console.print("  ".join(filter(None, [line, numbers_text(self._numbers)])))


def numbers_text(numbers: dict[str, float]) -> str:
    """`reward 0.512  kl 3.1`: three digits each."""
    return "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())


def seconds_text(seconds: float) -> str:
    """`42s`, `3m05s` or `2h07m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes_left:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


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
