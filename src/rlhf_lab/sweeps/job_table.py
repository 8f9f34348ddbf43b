"""The progress of a sweep's jobs, read from their folders wherever the jobs run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.sweeps.job import Job, last_line, state_of
from rlhf_lab.sweeps.job_rows import ENDED, JobRow, row_of_run, seconds_left
from rlhf_lab.types.data import Clock
from rlhf_lab.types.errors import UserError

LINE_CHARACTERS = 60


class JobTable:
    """Reads the progress of all jobs. at_a_time: how many run side by side."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int, clock: Clock = time.monotonic) -> None:
        self._jobs = jobs
        self._at_a_time = at_a_time
        self._clock = clock
        self._followers = {job.name: RunFollower(job.folder) for job in jobs if job.is_run}
        self._ended: dict[str, JobRow] = {}
        self._seen_at: dict[str, float] = {}

    def read(self) -> list[JobRow]:
        """The rows of all jobs now. A job that ended is not read again."""
        rows = []
        for job in self._jobs:
            row = self._ended.get(job.name) or self._row(job)
            if row.state in ENDED:
                self._ended[job.name] = row
            rows.append(row)
        return rows

    def seconds_left(self, rows: Sequence[JobRow]) -> float | None:
        """Seconds until all jobs are done, at the pace so far; None before any first round."""
        return seconds_left(rows, self._at_a_time)

    def _row(self, job: Job) -> JobRow:
        try:
            state = state_of(job).name
        except UserError:
            return JobRow(job.name, "unreadable", job.rounds)
        if not job.is_run:
            return self._stages_row(job, state)
        if state == "new":
            return JobRow(job.name, state, job.rounds)
        follower = self._followers[job.name]
        return row_of_run(job.name, state, job.rounds, follower, follower.view())

    def _stages_row(self, job: Job, state: str) -> JobRow:
        """The row of a job that makes stages, timed since it was first seen to run."""
        now = self._clock()
        if state == "running":
            self._seen_at.setdefault(job.name, now)
        seconds = now - self._seen_at.get(job.name, now)
        note = last_line(job.log)[:LINE_CHARACTERS] if state == "running" else ""
        return JobRow(job.name, state, share=float(state == "finished"), seconds=seconds, note=note)
