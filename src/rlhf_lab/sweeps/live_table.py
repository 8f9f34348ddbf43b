"""Show the progress of a sweep's jobs: one live table, or plain lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import rich.console
from rich.live import Live
from rich.table import Table

from rlhf_lab.runs.live.lines import Pace, seconds_text
from rlhf_lab.runs.trackers.console import fitted_table
from rlhf_lab.sweeps.job_rows import (
    COLUMNS,
    LEAST_NEEDED,
    SHOWN_FIRST,
    JobRow,
    Jobs,
    cells,
    job_line,
    title,
)
from rlhf_lab.types.data import Clock

POLL_SECONDS = 1.0
# Lines of the screen for the shell's prompt and the table's head.
MARGIN = 7
# Running jobs that plain lines name.
MOST_NAMED = 4


def rendered(rows: Sequence[JobRow], left: float | None, width: int, height: int) -> Table:
    """The table, no wider and higher than the screen. Rows keep their order; where there is no room
    for all, running and failed jobs stay."""
    shown = chosen(rows, max(3, height - MARGIN))
    lines = [cells(row) for row in shown]
    if len(rows) > len(shown):
        lines.append({"job": f"and {len(rows) - len(shown)} more"})
    columns = [name for name in COLUMNS if any(line.get(name) for line in lines)]
    texts = [[line.get(name, "") for name in columns] for line in lines]
    table, _ = fitted_table(title(rows, left), columns, texts, width, LEAST_NEEDED)
    if note := next((row.note for row in shown if row.note), ""):
        table.caption, table.caption_justify = note, "left"
    return table


def chosen(rows: Sequence[JobRow], most: int) -> list[JobRow]:
    """At most so many rows, in their order."""
    rank = {name: number for number, name in enumerate(SHOWN_FIRST)}
    first = sorted(range(len(rows)), key=lambda number: rank.get(rows[number].state, 1))[:most]
    return [rows[number] for number in sorted(first)]


@contextmanager
def live_table(jobs: Jobs, is_quiet: bool) -> Iterator[None]:
    """Show the jobs while the block runs; lines where there is no terminal."""
    if is_quiet:
        yield
        return
    stop = threading.Event()
    follow = redraw if sys.stdout.isatty() else print_lines
    thread = threading.Thread(
        target=follow, args=(jobs, lambda: stop.wait(POLL_SECONDS)), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def redraw(jobs: Jobs, wait: Callable[[], bool]) -> None:
    """Redraw the table in place until `wait` returns True, and once more for the jobs that ended
    last."""
    console = rich.console.Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        is_last = False
        while not is_last:
            rows = jobs.read()
            left = jobs.seconds_left(rows)
            live.update(rendered(rows, left, console.width, console.height), refresh=True)
            is_last = wait()
        rows = jobs.read()
        left = jobs.seconds_left(rows)
        live.update(rendered(rows, left, console.width, console.height), refresh=True)


def print_lines(jobs: Jobs, wait: Callable[[], bool]) -> None:
    """Print lines until `wait` returns True."""
    lines = JobLines(jobs, time.monotonic)
    is_last = False
    while not is_last:
        is_last = wait()
        for text in lines.due():
            sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stdout.flush()


class JobLines:
    """Plain lines about jobs: one for each that starts or ends, and all of the running ones where
    nothing was printed for a while."""

    def __init__(self, jobs: Jobs, clock: Clock) -> None:
        self._jobs = jobs
        self._pace = Pace(clock)
        self._states = {row.name: row.state for row in jobs.read()}

    def due(self) -> list[str]:
        """The lines that are due now."""
        rows = self._jobs.read()
        summary = title(rows, self._jobs.seconds_left(rows))
        lines = []
        for row in rows:
            if row.state != self._states.get(row.name):
                self._states[row.name] = row.state
                took = f" in {seconds_text(row.seconds)}" if row.state != "running" else ""
                lines.append(f"{row.name}: {row.state}{took} ({summary})")
        if not lines and self._pace.is_due():
            return self.summary()
        if lines:
            self._pace.printed()
        return lines

    def summary(self) -> list[str]:
        """How many jobs are in which state, and the running ones."""
        self._pace.printed()
        rows = self._jobs.read()
        running = [row for row in rows if row.state == "running"]
        head = title(rows, self._jobs.seconds_left(rows))
        return [head, *map(job_line, running[:MOST_NAMED])]
