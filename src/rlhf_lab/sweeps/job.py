"""One job of a sweep: what to run, where, and how its state is told from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.rewards.build import parts
from rlhf_lab.rewards.function import FunctionReward, code_of
from rlhf_lab.runs.folder import MANIFEST, config_hash
from rlhf_lab.runs.locks import is_free
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.reading import Unreadable, file_size
from rlhf_lab.training.stages.cache import lock_of
from rlhf_lab.types.errors import UserError

# What says where a run writes and whom it tells, and changes nothing that it computes.
TOLD = ("output", "tracker", "checkpoint")
# Where servers are, and how long they are waited for.
ADDRESSES = ("urls", "host", "port", "nccl_host", "connect_seconds")
TAIL_BYTES = 65536
# Ended before the end, without an error: goes on from its checkpoint.
CUT_OFF = ("stopped", "interrupted", "died", "paused")


@dataclass(frozen=True)
class Job:
    """name: the swept keys and values. overrides: for Hydra's launcher. words: what `rlhf-lab`
    takes for this job alone. content: hash of the resolved config. stages: products that must be
    there first, or the product that the job makes. devices: cores or accelerators that it holds.
    threads: of its widest operation. script: bash that does the same over several nodes.
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

    @property
    def is_run(self) -> bool:
        """Whether the job is a run, and not a stage that runs share."""
        return self.rounds > 0


@dataclass(frozen=True)
class State:
    """What a job's folder tells. name: new, running, finished, failed, or one of CUT_OFF. manifest
    is empty for a new job."""

    name: str
    manifest: Mapping[str, Any]

    def is_of(self, code: str) -> bool:
        """Whether this code made it."""
        return self.manifest.get("code") == code


def unaddressed(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's plain values without the addresses of its servers, which are other ones when a job
    goes on elsewhere."""
    generator = {k: v for k, v in values["generator"].items() if k not in ADDRESSES}
    return {**values, "generator": generator}


def content_of(config: Config) -> str:
    """Hash of everything that decides what a run computes and how it is judged, the user's own
    functions included."""
    values = unaddressed(plain(config))
    settings = {key: value for key, value in values.items() if key not in TOLD}
    every = [*parts(config.reward), *parts(config.judge)]
    functions = [code_of(part) for part in every if isinstance(part, FunctionReward)]
    return config_hash(settings | {"functions": functions})


def made(stages: Sequence[Path]) -> str:
    """The state of a job that makes products: finished, running, or new."""
    missing = [stage for stage in stages if not stage.exists()]
    if not missing:
        return "finished"
    return "new" if all(is_free(lock_of(stage)) for stage in missing) else "running"


def state_of(job: Job) -> State:
    """The state of a job. Raises UserError if its folder holds something else."""
    path = job.folder / MANIFEST
    if not job.is_run:
        return State(made(job.stages), {})
    if not path.exists():
        return State("new", {})
    try:
        manifest = read_manifest(path)
    except Unreadable as error:
        raise UserError(
            f"{error}: delete {job.folder} to run the job anew, or restore the file"
        ) from error
    if manifest.get("content") != job.content:
        raise UserError(
            f"{job.folder} holds a run of other settings: pass another output.root, or move that "
            "run away"
        )
    return State(state_in(manifest), manifest)


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; "" if there is none to be read."""
    try:
        start = max(0, file_size(log) - TAIL_BYTES)
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode("utf-8", errors="replace")
    except (OSError, Unreadable):
        return ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
