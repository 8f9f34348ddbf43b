"""Show the progress of a sweep's jobs: one live table, or plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.live import Live
from rich.table import Table

from rlhf_lab.runs.live.display import plain_screen, repeating
from rlhf_lab.runs.live.lines import Pace, print_timed, seconds_text
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
    """Show the jobs while the block runs: one table on a terminal, plain lines elsewhere."""
    if is_quiet:
        yield
        return
    progress = JobProgress(jobs, time.monotonic)
    screen = plain_screen()
    live = Live(console=screen, auto_refresh=False) if sys.stdout.isatty() else None

    def show() -> None:
        if live is None:
            print_timed(progress.lines())
        else:
            live.update(progress.table(screen.width, screen.height), refresh=True)

    with live or nullcontext():
        show()
        try:
            with repeating(show, POLL_SECONDS):
                yield
        finally:
            show()


class JobProgress:
    """Jobs as a table, and as plain lines: one for each that starts or ends, and all of the running
    ones where nothing was printed for a while."""

    def __init__(self, jobs: Jobs, clock: Clock) -> None:
        self._jobs = jobs
        self._pace = Pace(clock)
        self._states = {row.name: row.state for row in jobs.read()}

    def table(self, width: int, height: int) -> Table:
        """The table of the jobs now, no wider and higher than the screen."""
        rows = self._jobs.read()
        return rendered(rows, self._jobs.seconds_left(rows), width, height)

    def lines(self) -> list[str]:
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
