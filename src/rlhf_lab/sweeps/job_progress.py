"""How far the jobs of a sweep are: a row for each, one live table on a terminal, plain lines
elsewhere; and the reader of jobs that another process runs, as sweep.json lists them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.live import Live
from rich.table import Table

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.live.display import PlainScreen, repeating
from rlhf_lab.runs.live.lines import (
    Pace,
    count_text,
    mean_lag,
    number_text,
    print_timed,
    run_line,
    seconds_text,
    share_text,
)
from rlhf_lab.runs.live.progress import TRAIN
from rlhf_lab.runs.live.state import LiveState, RunFollower
from rlhf_lab.runs.reading import last_line
from rlhf_lab.runs.trackers.console import counted, fitted_table
from rlhf_lab.sweeps.sweep_file import RECORD, job_folder, read_record
from rlhf_lab.types.data import Clock
from rlhf_lab.types.errors import UserError

SHOWN_FIRST = (
    *("running", "failed", "unreadable", "stopped", "died", "interrupted", "paused"),
    *("finished", "new"),
)
STATE_TEXTS = {"new": "queued"}
# States that no launcher changes any more.
ENDED = ("finished", "failed")
# t/g: of the trainer and of its generators.
COLUMNS = ("job", "state", "round", "ETA", "reward", "KL", "lag", "waits t/g", "tokens/s", "took")
# Left out first where the terminal is narrow.
LEAST_NEEDED = ("tokens/s", "waits t/g", "took", "lag", "KL")
# Of the jobs that make what runs share, before the runs start.
STAGE_LOGS = Path("logs", "stages")
# A log of a job that works has a line at least every minute.
FRESH_SECONDS = 70.0
POLL_SECONDS = 1.0
# Lines of the screen for the shell's prompt and the table's head.
MARGIN = 7
# Running jobs that plain lines name.
MOST_NAMED = 4


@dataclass(frozen=True)
class JobRow:
    """A job's progress. rounds: 0 for a job that makes stages. share: of its rounds that are done.
    seconds: from its last start to now or to its end. predicted: seconds that the whole job takes
    at this pace, None before the first round. live: of its run, None before it began. note: the
    last line of its log, for a job that makes stages."""

    name: str
    state: str
    rounds: int = 0
    share: float = 0.0
    seconds: float = 0.0
    predicted: float | None = None
    live: LiveState | None = None
    note: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in ("new", "running")


class Jobs(Protocol):
    """Reads the progress of jobs, again and again."""

    def read(self) -> Sequence[JobRow]: ...

    def seconds_left(self, rows: Sequence[JobRow]) -> float | None: ...


def row_of_run(
    name: str, state: str, rounds: int, follower: RunFollower, live: LiveState
) -> JobRow:
    """The row of a job whose run has a folder."""
    done = follower.rows
    share = 1.0 if state == "finished" else (done[-1].step + 1 if done else 0) / max(rounds, 1)
    # A resumed run continues the wall-clock of its rounds, but starts its age again.
    wall = done[-1].get("wall") or 0.0 if done else 0.0
    timed = max(wall, live.elapsed if share == 1 else 0.0) if done else None
    predicted = timed / share if timed is not None and share else None
    return JobRow(name, state, rounds, share, live.elapsed, predicted, live)


def seconds_left(rows: Sequence[JobRow], at_a_time: int) -> float | None:
    """Seconds until all jobs are done, at the pace so far; None before any first round. at_a_time:
    how many run side by side."""
    predicted = [row.predicted for row in rows if row.predicted is not None]
    if not predicted:
        return None
    mean = sum(predicted) / len(predicted)
    work = [mean * (1 - row.share) for row in rows if row.is_open]
    # A single job is not divided.
    return max(sum(work) / at_a_time, max(work, default=0.0))


def counts(rows: Sequence[JobRow]) -> str:
    """`3 finished, 1 failed, 2 running, 6 queued`."""
    states = Counter(row.state for row in rows)
    return ", ".join(
        f"{states[name]} {STATE_TEXTS.get(name, name)}" for name in SHOWN_FIRST if states[name]
    )


def title(rows: Sequence[JobRow], left: float | None) -> str:
    is_open = any(row.is_open for row in rows)
    ending = f", ETA {seconds_text(left)}" if left is not None and is_open else ""
    return f"{counted(len(rows), 'job')}: {counts(rows)}{ending}"


def cells(row: JobRow) -> dict[str, str]:
    """The cells of a row by column; "" for what is not known."""
    found = {"job": row.name, "state": STATE_TEXTS.get(row.state, row.state)}
    if row.state != "new" and row.seconds:
        found["took"] = seconds_text(row.seconds)
    if row.rounds:
        found["round"] = f"{round(row.share * row.rounds)}/{row.rounds}"
    if row.live is not None:
        found |= numbers(row.live)
    return dict.fromkeys(COLUMNS, "") | found


def numbers(live: LiveState) -> Mapping[str, str]:
    """The cells that a run's own state fills."""
    found = {}
    if live.is_running and live.stage and live.stage != TRAIN:
        found["round"] = f"{live.stage} {live.stage_done}/{live.stage_total}"
    if live.eta is not None:
        found["ETA"] = seconds_text(live.eta)
    for column, value in (("reward", live.reward), ("KL", live.kl)):
        if value is not None:
            found[column] = number_text(value)
    if live.lag_updates:
        found["lag"] = number_text(mean_lag(live.lag_updates))
    if live.trainer_waiting is not None and live.generator_waiting is not None:
        share = f"{100 * live.trainer_waiting:.0f}/{share_text(live.generator_waiting)}"
        found["waits t/g"] = share
    if live.is_running and live.generated_per_second is not None:
        found["tokens/s"] = count_text(live.generated_per_second)
    return found


def job_line(row: JobRow) -> str:
    text = run_line(row.live) if row.live is not None else row.note
    return f"  {row.name}: {text}" if text else f"  {row.name}"


class RecordedJobs:
    """Reads the runs of a sweep's folder. Raises UserError if it holds no sweep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorded: Mapping[str, str] = read_record(folder).get("folders", {})
        if not self._recorded:
            raise UserError(f"{folder} is not a sweep: it has no {RECORD}")
        self.followers: dict[str, RunFollower] = {}
        self._ended: dict[str, JobRow] = {}

    def read(self) -> list[JobRow]:
        """The rows of all jobs now. A job that finished is not read again."""
        rows = [self._ended.get(name) or self._row(name) for name in self._recorded]
        self._ended |= {row.name: row for row in rows if row.state == "finished"}
        if not any(row.state == "running" for row in rows):
            rows += stage_rows(self._folder / STAGE_LOGS)
        return rows

    def _row(self, name: str) -> JobRow:
        """The row of a job by its folder alone."""
        if name not in self.followers:
            folder = job_folder(self._folder, name, self._recorded[name])
            if not (folder / MANIFEST).exists():
                return JobRow(name, "new")
            self.followers[name] = RunFollower(folder)
        live = self.followers[name].view()
        return row_of_run(name, live.state, live.rounds, self.followers[name], live)

    def seconds_left(self, rows: Sequence[JobRow]) -> float | None:
        """Seconds until all jobs are done, with as many side by side as run now."""
        return seconds_left(rows, max(1, sum(row.state == "running" for row in rows)))

    def is_over(self, rows: Sequence[JobRow]) -> bool:
        """Whether no job runs or waits."""
        return not any(row.is_open for row in rows)


def stage_rows(logs: Path) -> list[JobRow]:
    """A row for each log of a job that makes stages and still writes."""
    rows = []
    for log in sorted(logs.rglob("*.log")):
        if time.time() - log.stat().st_mtime < FRESH_SECONDS:
            name = log.relative_to(logs).with_suffix("")
            rows.append(JobRow(f"stages of {name}", "running", note=last_line(log)))
    return rows


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
    screen = PlainScreen()
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
