"""One job of a sweep: its command, its folder, and its state as the folder shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config, changed, settings_of
from rlhf_lab.experiment.own_code import code_of_parts
from rlhf_lab.rewards.options import parts
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
from rlhf_lab.runs.locks import is_free
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.provenance import with_plugins
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.reading import last_line as last_line
from rlhf_lab.training.stages.cache import lock_file
from rlhf_lab.types.errors import UserError

# Config nodes that decide where a run writes, but not what it computes.
OUTPUT_NODES = ("output", "tracker", "checkpoint")
# What two runs of one job may differ in.
ASIDE_OF_JOBS = (*OUTPUT_NODES, *ADDRESSES, "plugins")
# States of a job that ended early without an error: it resumes from its checkpoint.
RESUMABLE = ("stopped", "interrupted", "died", "paused")


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
class State:
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


def stages_state(stages: Sequence[Path]) -> str:
    """The state of a job that makes stages: finished, running, or new."""
    missing = [stage for stage in stages if not stage.exists()]
    if not missing:
        return "finished"
    return "new" if all(is_free(lock_file(stage)) for stage in missing) else "running"


def state_of(job: Job) -> State:
    """The state of a job. Raises UserError if its folder holds another run."""
    path = job.folder / MANIFEST
    if not job.is_run:
        return State(stages_state(job.stages), {})
    if not path.exists():
        return State("new", {})
    try:
        manifest = read_manifest(path)
    except Unreadable as error:
        raise UserError(
            f"{error}: delete {job.folder} to run the job anew, or restore the file"
        ) from error
    require_same(job, manifest)
    return State(state_in(manifest), manifest)
