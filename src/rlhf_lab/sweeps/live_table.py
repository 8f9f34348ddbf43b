"""Show the progress of a sweep's jobs: one live table, or a line per change."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import rich.console
from rich.live import Live
from rich.table import Table

from rlhf_lab.runs.trackers.console import seconds_text
from rlhf_lab.runs.trackers.fitted_table import fitted_table
from rlhf_lab.sweeps.job_table import SHOWN_FIRST, JobRow, JobTable, cells, title

COLUMNS = ("job", "state", "progress", "reward", "took")
POLL_SECONDS = 1.0
# Lines of the screen for the shell's prompt and the table's head.
MARGIN = 7


def rendered(rows: Sequence[JobRow], left: float | None, width: int, height: int) -> Table:
    """The table, with jobs in the order of the sweep. Where they do not all fit the screen, running
    and failed ones are shown before others."""
    rank = {name: number for number, name in enumerate(SHOWN_FIRST)}
    order = sorted(range(len(rows)), key=lambda number: rank.get(rows[number].state, 1))
    room = max(3, height - MARGIN)
    shown = [cells(rows[number]) for number in sorted(order[:room])]
    if len(rows) > room:
        shown.append((f"and {len(rows) - room} more", "", "", "", ""))
    return fitted_table(title(rows, left), COLUMNS, shown, width, drop=("reward",))[0]


@contextmanager
def live_table(jobs: JobTable, is_quiet: bool) -> Iterator[None]:
    """Show the table while the block runs; lines where there is no terminal."""
    if is_quiet:
        yield
        return
    stop = threading.Event()
    draw = redraw if sys.stdout.isatty() else print_changes
    thread = threading.Thread(target=draw, args=(jobs, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def redraw(jobs: JobTable, stop: threading.Event) -> None:
    """Redraw the table in place until `stop` is set."""
    console = rich.console.Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        is_last = False
        while not is_last:
            # Once more at the end, for the jobs that ended last.
            is_last = stop.wait(POLL_SECONDS)
            rows = jobs.read()
            table = rendered(rows, jobs.seconds_left(rows), console.width, console.height)
            live.update(table, refresh=True)


def print_changes(jobs: JobTable, stop: threading.Event) -> None:
    """Print a line for each job that starts or ends."""
    states = {row.job.name: row.state for row in jobs.read()}
    is_last = False
    while not is_last:
        is_last = stop.wait(POLL_SECONDS)
        rows = jobs.read()
        for row in rows:
            if row.state != states[row.job.name]:
                states[row.job.name] = row.state
                took = f" in {seconds_text(row.seconds)}" if row.state != "running" else ""
                summary = title(rows, jobs.seconds_left(rows))
                text = f"{row.job.name}: {row.state}{took} ({summary})"
                sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stdout.flush()
