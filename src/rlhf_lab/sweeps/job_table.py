"""The progress of a sweep's jobs, read from their folders wherever the jobs run."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlhf_lab.runs.atomic_folder import ENTRY
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.manifest import last_start
from rlhf_lab.runs.reading import Unreadable, checked, file_size, parse_json
from rlhf_lab.runs.schema import Round
from rlhf_lab.runs.trackers.console import counted, seconds_text
from rlhf_lab.sweeps.job import Job, State, last_line, state_of
from rlhf_lab.types.errors import UserError

# Enough for a line of metrics.
TAIL_BYTES = 16384
LINE_CHARACTERS = 60
SHOWN_FIRST = ("running", "failed", "stopped", "died", "interrupted", "paused", "finished", "new")
STATE_TEXTS = {"new": "queued"}


@dataclass(frozen=True)
class JobRow:
    """A job's progress. share: of its rounds that are done. seconds: from its start to now or to
    its end. predicted: seconds that the whole job takes at this pace. reward: mean of its last
    round. None before the first round."""

    job: Job
    state: str
    share: float
    seconds: float
    predicted: float | None
    reward: float | None


class JobTable:
    """Reads the progress of all jobs. at_a_time: how many run side by side."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int) -> None:
        self._jobs = jobs
        self._at_a_time = at_a_time
        self._ended: dict[str, JobRow] = {}

    def read(self) -> list[JobRow]:
        """The rows of all jobs now. A job that ended is not read again."""
        rows = []
        for job in self._jobs:
            row = self._ended.get(job.name) or row_of(job)
            if row.state in ("finished", "failed"):
                self._ended[job.name] = row
            rows.append(row)
        return rows

    def seconds_left(self, rows: Sequence[JobRow]) -> float | None:
        """Seconds until all jobs are done, at the pace so far; None before any first round."""
        predicted = [row.predicted for row in rows if row.predicted is not None]
        if not predicted:
            return None
        mean = sum(predicted) / len(predicted)
        work = [mean * (1 - row.share) for row in rows if row.state in ("new", "running")]
        # A single job is not divided.
        return max(sum(work) / self._at_a_time, max(work, default=0.0))


def row_of(job: Job) -> JobRow:
    """The progress of a job, read from its folder."""
    try:
        state = state_of(job)
    except UserError:
        state = State("unreadable", {})
    metrics = last_metrics(job.folder / METRICS) if job.is_run else {}
    share = 1.0 if state.name == "finished" else (metrics.get("step", -1) + 1) / max(job.rounds, 1)
    seconds = age(state) if job.is_run else stage_age(job, state)
    # A resumed run continues the wall-clock of its rounds, but starts its age again.
    wall = metrics.get("seconds/wall", 0.0)
    timed = max(wall, seconds if share == 1 else 0.0) if metrics else None
    predicted = timed / share if timed is not None and share else None
    return JobRow(job, state.name, share, seconds, predicted, metrics.get("reward/mean"))


def age(state: State) -> float:
    """Seconds from a job's last start to its end, or to now."""
    if "started" not in state.manifest:
        return 0.0
    begun = datetime.fromisoformat(last_start(state.manifest))
    ended = state.manifest.get("ended") if state.name != "running" else None
    end = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return max(0.0, (end - begun).total_seconds())


def stage_age(job: Job, state: State) -> float:
    """Seconds from the start of a job that makes stages to the last of them, or to now. The files
    tell, since the job may run on another machine."""
    if state.name == "new":
        return 0.0
    try:
        begun = job.lock.stat().st_mtime
        ended = [(stage / ENTRY).stat().st_mtime for stage in job.stages if stage.exists()]
    except OSError:
        return 0.0
    return max(0.0, (max(ended) if state.name == "finished" else time.time()) - begun)


def last_metrics(path: Path) -> Mapping[str, Any]:
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


def counts(rows: Sequence[JobRow]) -> str:
    """`3 finished, 1 failed, 2 running, 6 queued`."""
    states = Counter(row.state for row in rows)
    return ", ".join(
        f"{states[name]} {STATE_TEXTS.get(name, name)}" for name in SHOWN_FIRST if states[name]
    )


def title(rows: Sequence[JobRow], left: float | None) -> str:
    """The line above the table."""
    ending = f", about {seconds_text(left)} left" if left is not None and is_open(rows) else ""
    return f"{counted(len(rows), 'job')}: {counts(rows)}{ending}"


def is_open(rows: Sequence[JobRow]) -> bool:
    return any(row.state in ("new", "running") for row in rows)


def cells(row: JobRow) -> tuple[str, ...]:
    """The cells of a row; for a job that makes stages, the last line of its log."""
    has_begun, job = row.state != "new", row.job
    done = f"{round(row.share * job.rounds)}/{job.rounds}" if job.is_run else ""
    if row.state == "running" and not job.is_run:
        done = last_line(job.log)[:LINE_CHARACTERS]
    return (
        job.name,
        STATE_TEXTS.get(row.state, row.state),
        done,
        f"{row.reward:.3f}" if row.reward is not None else "",
        seconds_text(row.seconds) if has_begun else "",
    )
