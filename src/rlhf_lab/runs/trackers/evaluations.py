"""Sends a run's evaluations to its mirrors: each once, however often the run is resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.trackers.identity import TrackedRun
from rlhf_lab.runs.trackers.mirrors import Mirror, Warn, open_wandb
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.tensorboard import EVALUATIONS, EVENTS, TensorBoardTracker
from rlhf_lab.runs.trackers.wandb import FILES, STEP, WandbTracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

Row = Mapping[str, Any]
SENT = "evaluations.json"
# Metrics that rounds of training have under the same names.
SHARED = "sample/"
DIGITS = 8


def mirror_evaluation(
    options: TrackerOptions, run: TrackedRun, rows: Sequence[Row], warn: Warn
) -> None:
    """Send the evaluation that ends a run to the trackers that mirror it, by the updates that made
    each version."""
    scores = [without_clock(row) for row in rows]
    if options.tensorboard:
        write_events(run, scores, warn)
    if options.wandb is not WandbMode.off:
        send_to_wandb(options, run, scores, warn)


def write_events(run: TrackedRun, scores: Sequence[Row], warn: Warn) -> None:
    """Write the first evaluation of a run for TensorBoard, which has no place for another one."""
    if sent_digests(run.folder, EVENTS):
        return
    mirror = Mirror("tensorboard", TensorBoardTracker(run.folder / EVENTS, EVALUATIONS), 0, warn)
    for row in scores:
        found = step_row(row, run.config)
        mirror.log(found, found.pop(STEP))
    mirror.close()
    note_sent(run.folder, EVENTS, [digest_of(scores)])


def send_to_wandb(
    options: TrackerOptions, run: TrackedRun, scores: Sequence[Row], warn: Warn
) -> None:
    """Send the evaluation that ends a run as further steps of the run, and any later one that
    differs from it as a run of its own, with the job type `evaluate`."""
    sent, digest = sent_digests(run.folder), digest_of(scores)
    if digest in sent:
        return
    is_own = run.job_type == "train" and not sent
    first = int(run.config["run"]["updates"]) if is_own else 0
    try:
        tracker = open_wandb(options, run) if is_own else open_again(options, run, digest)
    except UserError as error:
        warn(f"the evaluation is in evals.jsonl, but could not be sent elsewhere: {error}")
        return
    mirror = Mirror("wandb", tracker, 0, warn)
    for step, row in enumerate(scores, start=first):
        mirror.log(step_row(row, run.config), step)
    mirror.close()
    note_sent(run.folder, FILES, [*sent, digest])


def open_again(options: TrackerOptions, run: TrackedRun, digest: str) -> WandbTracker:
    """Open a run of its own for an evaluation."""
    return open_wandb(options, replace(run, job_type="evaluate"), f"{run.run_id}-{digest}")


def step_row(row: Row, config: Mapping[str, Any]) -> Metrics:
    """A version's scores at the number of optimizer updates that made it."""
    recipe = config["run"]
    updates = row["version"] * recipe["updates_per_round"] * recipe["passes"]
    names = {name: f"eval/{name}" for name in row if name.startswith(SHARED)}
    return {STEP: updates} | {names.get(name, name): value for name, value in row.items()}


def without_clock(row: Row) -> dict[str, Any]:
    """The columns that do not differ when a version is judged again."""
    return {name: value for name, value in row.items() if not name.startswith("timing/")}


def digest_of(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:DIGITS]


def sent_file(folder: Path, mirror: str = FILES) -> Path:
    return folder / mirror / SENT


def sent_digests(folder: Path, mirror: str = FILES) -> list[str]:
    """Digests of the evaluations that a mirror has. mirror: its folder in the run's."""
    path = sent_file(folder, mirror)
    return read_json(path, list[str]) if path.exists() else []


def note_sent(folder: Path, mirror: str, digests: Sequence[str]) -> None:
    """Record which evaluations a mirror has."""
    sent_file(folder, mirror).write_text(json.dumps(list(digests)) + "\n", encoding="utf-8")
