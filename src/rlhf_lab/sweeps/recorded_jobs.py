"""The jobs of a sweep that another process runs, as sweep.json lists them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.runs.reading import last_line
from rlhf_lab.sweeps.job_rows import JobRow, row_of_run, seconds_left
from rlhf_lab.sweeps.sweep_file import RECORD, job_folder, read_record
from rlhf_lab.types.errors import UserError

# Of the jobs that make what runs share, before the runs start.
STAGE_LOGS = Path("logs", "stages")
# A log of a job that works has a line at least every minute.
FRESH_SECONDS = 70.0


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
