"""The folder of a run: its files and how they are read, and new folders.

manifest.json   what ran, with what, and how it ended     config.yaml   the resolved config
failure.txt     the traceback of a run that failed
metrics.jsonl   one row per round                         evals.jsonl   one row per evaluation
schedule.jsonl  which versions generated each chunk       timeline.jsonl  spans of each process
rollouts.jsonl  some samples of each round
validation.jsonl  the score of the version at which the run paused or ended (eval.validate)
weights/        versions for evaluation                   checkpoints/  to resume from
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from rlhf_lab.runs.jsonl import Rows, read_rows
from rlhf_lab.types.errors import UserError

MANIFEST = "manifest.json"
CONFIG = "config.yaml"
FAILURE = "failure.txt"
METRICS = "metrics.jsonl"
EVALS = "evals.jsonl"
# Label of the evaluation of the last version on more prompts: evals-last.jsonl.
LAST = "last"
SCHEDULE = "schedule.jsonl"
TIMELINE = "timeline.jsonl"
VALIDATION = "validation.jsonl"
ROLLOUTS = "rollouts.jsonl"
POLICY = "policy"
# What rows are appended to while a run trains.
GROWING = (METRICS, SCHEDULE, TIMELINE, ROLLOUTS)


def manifest_path(folder: Path) -> Path:
    """A run's manifest. Raises UserError if the folder has none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder} is not a run: it has no {MANIFEST} (see `rlhf-lab runs`)")
    return path


def make_folder(folder: Path, key: str = "output.dir") -> None:
    """Create the folder that an option names, unless it exists. Raises UserError with the key."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{key}={folder} cannot be created ({error.strerror}): choose another folder"
        ) from error


def new_folder(root: Path, label: str) -> Path:
    """Create `<label>-<date>-<time>` below root, with a number appended if the name is taken."""
    stem = f"{label}-{datetime.now():%Y%m%d-%H%M%S}"
    make_folder(root)
    number = 1
    while True:
        folder = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            os.mkdir(folder)
        except FileExistsError:
            number += 1
        else:
            return folder


def metrics(folder: Path) -> Rows:
    """The rounds of a run; none if it wrote none. Raises UserError on a damaged line."""
    return read_rows(folder / METRICS)


def evals(folder: Path) -> Rows:
    """The evaluations of a run; none if it wrote none. Raises UserError on a damaged line."""
    return read_rows(folder / EVALS)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
