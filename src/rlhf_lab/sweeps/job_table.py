"""The progress of a sweep's jobs, read from their folders wherever the jobs run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rlhf_lab.runs.disk import ENTRY
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.sweeps.job import Job, last_line, state_of
from rlhf_lab.sweeps.job_rows import ENDED, JobRow, row_of_run, seconds_left
from rlhf_lab.types.errors import UserError

LINE_CHARACTERS = 60


class JobTable:
    """Reads the progress of all jobs. at_a_time: how many run side by side."""

    def __init__(self, jobs: Sequence[Job], at_a_time: int) -> None:
        self._jobs = jobs
        self._at_a_time = at_a_time
        self._followers = {job.name: RunFollower(job.folder) for job in jobs if job.is_run}
        self._ended: dict[str, JobRow] = {}

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
        note = last_line(job.log)[:LINE_CHARACTERS] if state == "running" else ""
        share = float(state == "finished")
        return JobRow(job.name, state, share=share, seconds=stage_age(job, state), note=note)


def stage_age(job: Job, state: str) -> float:
    """Seconds from the start of a job that makes stages to the last of them, or to now. The files
    tell, since the job may run on another machine."""
    if state == "new":
        return 0.0
    try:
        begun = job.lock.stat().st_mtime
        ended = [(stage / ENTRY).stat().st_mtime for stage in job.stages if stage.exists()]
    except OSError:
        return 0.0
    return max(0.0, (max(ended) if state == "finished" else time.time()) - begun)
