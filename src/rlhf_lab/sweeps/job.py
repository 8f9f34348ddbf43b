"""One job of a sweep: its command, its folder, its state as the folder shows it; and the progress
of many, read from their folders wherever the jobs run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config.code import code_of_parts
from rlhf_lab.experiment.config.config import Config, changed, settings_of
from rlhf_lab.rewards.options import parts
from rlhf_lab.runs.disk import ENTRY
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.identity import (
    ADDRESSES,
    RULE,
    flat,
    hash_of,
    is_below,
    listed,
    recorded_settings,
)
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.runs.locks import is_free
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.provenance import with_plugins
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.reading import last_line as last_line
from rlhf_lab.sweeps.job_progress import ENDED, JobRow, row_of_run, seconds_left
from rlhf_lab.training.stages.cache import lock_file
from rlhf_lab.types.errors import UserError

# Config nodes that decide where a run writes, but not what it computes.
OUTPUT_NODES = ("output", "tracker", "checkpoint")
# What two runs of one job may differ in.
ASIDE_OF_JOBS = (*OUTPUT_NODES, *ADDRESSES, "plugins")
# States of a job that ended early without an error: it resumes from its checkpoint.
RESUMABLE = ("stopped", "interrupted", "died", "paused")
LINE_CHARACTERS = 60


@dataclass(frozen=True)
class Job:
    """A run, or a stage that runs share.

    name: the swept keys and values. words: the arguments of `rlhf-lab` for this job. overrides: for
    Hydra's launcher. content: hash of its settings. stages: artifacts that the job needs,
    or makes. devices: cores or accelerators that it uses. threads: of its widest operation.
    script: a bash script that runs the job on several nodes. facts: names of its task, model,
    algorithm and mode; with settings, as in manifests, they predict its cost. config: of a run.
    """

    name: str
    words: tuple[str, ...]
    overrides: tuple[str, ...]
    folder: Path
    log: Path
    lock: Path
    content: str
    stages: tuple[Path, ...]
    rounds: int = 0
    devices: int = 1
    threads: int = 1
    script: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: Config | None = field(default=None, repr=False, compare=False)

    @property
    def is_run(self) -> bool:
        """Whether the job is a run, not a stage."""
        return self.rounds > 0


@dataclass(frozen=True)
class JobState:
    """name: new, running, finished, failed, or one of RESUMABLE. manifest: that of the run, empty
    for a new job."""

    name: str
    manifest: Mapping[str, Any]

    def is_of(self, code: str) -> bool:
        """Whether this version of the code made the run."""
        plugins = self.manifest.get("plugins", [])
        return self.manifest.get("code") == with_plugins(code, plugins)


def content_of(config: Config) -> str:
    """Hash of everything that decides what a run computes and how it is judged, including the code
    of the user's reward functions and of plugins' parts."""
    values = flat(changed(config))
    settings = {key: value for key, value in values.items() if not is_below(key, ASIDE_OF_JOBS)}
    every = [*parts(config.reward), *parts(config.judge)]
    functions = [code for part in every for code in part.code_digests()]
    own = {"own_code": code} if (code := code_of_parts(config)) else {}
    return RULE + hash_of(settings | {"functions": functions} | own)


def require_same(job: Job, manifest: Mapping[str, Any]) -> None:
    """Refuse a folder that holds a run of other settings. Of a run whose hash was taken by another
    rule, the recorded settings are compared."""
    content = str(manifest.get("content"))
    if content == job.content or job.config is None:
        return
    was = recorded_settings(job.folder, manifest)
    differences = was.differences(settings_of(job.config), ASIDE_OF_JOBS)
    if not was.values.get("run.oversample"):  # the algorithm chose it
        differences.pop("run.oversample", None)
    if differences or content.startswith(RULE):
        what = listed(differences) or "other code of its reward functions or plugins"
        raise UserError(
            f"{job.folder} holds a run of other settings ({what}): pass another output.root, or "
            "move that run away"
        )


def state_of(job: Job) -> JobState:
    """The state of a job. Raises UserError if its folder holds another run."""
    path = job.folder / MANIFEST
    if not job.is_run:
        missing = [stage for stage in job.stages if not stage.exists()]
        is_idle = all(is_free(lock_file(stage)) for stage in missing)
        return JobState("finished" if not missing else "new" if is_idle else "running", {})
    if not path.exists():
        return JobState("new", {})
    try:
        manifest = read_manifest(path)
    except Unreadable as error:
        raise UserError(
            f"{error}: delete {job.folder} to run the job anew, or restore the file"
        ) from error
    require_same(job, manifest)
    return JobState(state_in(manifest), manifest)


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
            note = last_line(job.log)[:LINE_CHARACTERS] if state == "running" else ""
            share = float(state == "finished")
            return JobRow(job.name, state, share=share, seconds=stage_age(job, state), note=note)
        if state == "new":
            return JobRow(job.name, state, job.rounds)
        follower = self._followers[job.name]
        return row_of_run(job.name, state, job.rounds, follower, follower.view())


def stage_age(job: Job, state: str) -> float:
    """Seconds from the start of a job that makes stages to the last of them, or to now, by its
    files, since the job may run on another machine."""
    if state == "new":
        return 0.0
    try:
        begun = job.lock.stat().st_mtime
        ended = [(stage / ENTRY).stat().st_mtime for stage in job.stages if stage.exists()]
    except OSError:
        return 0.0
    return max(0.0, (max(ended) if state == "finished" else time.time()) - begun)
