"""One live table of a sweep's jobs; plain lines where there is no terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import rich.console
from rich.live import Live
from rich.table import Table

from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.manifest import last_start
from rlhf_lab.runs.reading import Unreadable, checked, file_size, parse_json
from rlhf_lab.runs.schema import Round
from rlhf_lab.runs.trackers.console import seconds_text
from rlhf_lab.sweeps.job import Job, State, last_line, state_of
from rlhf_lab.types.errors import UserError

POLL_SECONDS = 1.0
# Enough for a line of metrics.
TAIL_BYTES = 16384
# What is left of the screen for the shell's own lines and the table's head.
MARGIN = 7
LINE_CHARACTERS = 60
SHOWN_FIRST = ("running", "failed", "stopped", "died", "interrupted", "paused", "finished", "new")
WORDS = {"new": "queued"}


@dataclass(frozen=True)
class Line:
    """A job at a moment. share: of its rounds that are done. seconds: since it was started, up to
    its end. whole: seconds that all of it would take, as far as it tells. reward: of its last
    round. None before it has one."""

    job: Job
    state: str
    share: float
    seconds: float
    whole: float | None
    reward: float | None


class Board:
    """Looks at the jobs' folders, which tell the same wherever the jobs run."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int) -> None:
        self._jobs = jobs
        self._at_a_time = at_a_time
        self._done: dict[str, Line] = {}

    def look(self) -> list[Line]:
        """All jobs now. What has ended is not read again."""
        lines = []
        for job in self._jobs:
            line = self._done.get(job.name) or line_of(job)
            if line.state in ("finished", "failed"):
                self._done[job.name] = line
            lines.append(line)
        return lines

    def left(self, lines: Sequence[Line]) -> float | None:
        """Seconds until all are done, at the pace so far; None before anything can be told."""
        told = [line.whole for line in lines if line.whole is not None]
        if not told:
            return None
        mean = sum(told) / len(told)
        work = [mean * (1 - line.share) for line in lines if line.state in ("new", "running")]
        # The last ones cannot share what one of them has left.
        return max(sum(work) / self._at_a_time, max(work, default=0.0))


def line_of(job: Job) -> Line:
    """A job as its folder tells it."""
    try:
        state = state_of(job)
    except UserError:
        state = State("unreadable", {})
    row = last_row(job.folder / METRICS) if job.is_run else {}
    share = 1.0 if state.name == "finished" else (row.get("step", -1) + 1) / max(job.rounds, 1)
    seconds = age(state)
    # The wall-clock of the rounds goes on when a run is resumed, its age begins anew.
    wall = row.get("seconds/wall", 0.0)
    timed = max(wall, seconds if share == 1 else 0.0) if row else None
    whole = timed / share if timed is not None and share else None
    return Line(job, state.name, share, seconds, whole, row.get("reward/mean"))


def age(state: State) -> float:
    """Seconds from a job's last start to its end, or to now."""
    if "started" not in state.manifest:
        return 0.0
    begun = datetime.fromisoformat(last_start(state.manifest))
    ended = state.manifest.get("ended") if state.name != "running" else None
    end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return max(0.0, (end - begun).total_seconds())


def last_row(path: Path) -> Mapping[str, Any]:
    """The last whole line of a JSONL file, {} if there is none."""
    try:
        file_size(path)
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except (OSError, Unreadable):
        return {}
    for line in reversed(lines[:-1]):
        try:
            row = parse_json(line, dict[str, Any], path)
            checked(row, Round, path)
        except Unreadable:  # the first line of the tail may begin in its middle
            return {}
        return row
    return {}


def counts(lines: Sequence[Line]) -> str:
    """`3 finished, 1 failed, 2 running, 6 queued`."""
    found = Counter(line.state for line in lines)
    return ", ".join(
        f"{found[name]} {WORDS.get(name, name)}" for name in SHOWN_FIRST if found[name]
    )


def head(lines: Sequence[Line], left: float | None) -> str:
    """The line above the table."""
    ending = "" if left is None else f", about {seconds_text(left)} left"
    return f"{len(lines)} jobs: {counts(lines)}{ending if ending and is_open(lines) else ''}"


def is_open(lines: Sequence[Line]) -> bool:
    return any(line.state in ("new", "running") for line in lines)


def cells(line: Line) -> tuple[str, ...]:
    """A row of the table. A job that makes products says what it said last."""
    has_begun, job = line.state != "new", line.job
    done = f"{round(line.share * job.rounds)}/{job.rounds}" if job.is_run else ""
    if line.state == "running" and not job.is_run:
        done = last_line(job.log)[:LINE_CHARACTERS]
    return (
        job.name,
        WORDS.get(line.state, line.state),
        done,
        f"{line.reward:.3f}" if line.reward is not None else "",
        seconds_text(line.seconds) if has_begun and job.is_run else "",
    )


def drawn(lines: Sequence[Line], left: float | None, height: int) -> Table:
    """The table, with what matters now first and no more rows than fit."""
    table = Table(title=head(lines, left), title_justify="left")
    for column in ("job", "state", "rounds", "reward", "took"):
        table.add_column(column, overflow="fold")
    rank = {name: place for place, name in enumerate(SHOWN_FIRST)}
    ordered = sorted(lines, key=lambda line: rank.get(line.state, 1))
    room = max(3, height - MARGIN)
    for line in ordered[:room]:
        table.add_row(*cells(line))
    if len(ordered) > room:
        table.add_row(f"and {len(ordered) - room} more", "", "", "", "")
    return table


@contextmanager
def shown(board: Board, is_quiet: bool) -> Iterator[None]:
    """Show the board while the block runs."""
    if is_quiet:
        yield
        return
    stop = threading.Event()
    draw = draw_live if sys.stdout.isatty() else say_changes
    thread = threading.Thread(target=draw, args=(board, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def draw_live(board: Board, stop: threading.Event) -> None:
    """Redraw the table in place until it is over."""
    console = rich.console.Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        is_last = False
        while not is_last:
            # Once more at the end, for what ended last.
            is_last = stop.wait(POLL_SECONDS)
            lines = board.look()
            live.update(drawn(lines, board.left(lines), console.height), refresh=True)


def say_changes(board: Board, stop: threading.Event) -> None:
    """A line for each job that begins or ends."""
    before = {line.job.name: line.state for line in board.look()}
    is_last = False
    while not is_last:
        is_last = stop.wait(POLL_SECONDS)
        lines = board.look()
        for line in lines:
            if line.state != before[line.job.name]:
                before[line.job.name] = line.state
                took = f" in {seconds_text(line.seconds)}" if line.state != "running" else ""
                text = f"{line.job.name}: {line.state}{took} ({head(lines, board.left(lines))})"
                sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stdout.flush()
