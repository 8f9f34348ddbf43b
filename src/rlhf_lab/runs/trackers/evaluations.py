"""A run's evaluations at Weights & Biases: each once, however often a run is resumed or judged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.trackers.identity import Tracked
from rlhf_lab.runs.trackers.mirrors import Mirror, Say, as_evaluation, wandb_run
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.wandb import FILES, STEP
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

Row = Mapping[str, Any]
SENT = "evaluations.json"
# Names that a round's own samples have as well.
SHARED = "sample/"
DIGITS = 8


def mirror_evaluation(options: TrackerOptions, run: Tracked, rows: Sequence[Row], say: Say) -> None:
    """Tell the evaluation that ends a run as further steps of the run, and any later one that
    differs from it as a run of its own, with the job type `evaluate`."""
    if options.wandb is WandbMode.off:
        return
    told = [without_clock(row) for row in rows]
    sent, digest = already_sent(run.folder), digest_of(told)
    if digest in sent:
        return
    is_own = run.job_type == "train" and not sent
    first = int(run.config["run"]["updates"]) if is_own else 0
    try:
        opened = wandb_run(options, run) if is_own else other_run(options, run, digest)
    except UserError as error:
        say(f"the evaluation is in evals.jsonl, but could not be told elsewhere: {error}")
        return
    mirror = Mirror("wandb", opened, 0, say)
    for place, row in enumerate(told):
        mirror.log(step_row(row, run.config), first + place)
    mirror.close()
    sent_file(run.folder).write_text(json.dumps([*sent, digest]) + "\n", encoding="utf-8")


def other_run(options: TrackerOptions, run: Tracked, digest: str) -> Any:
    return wandb_run(options, as_evaluation(run), f"{run.run_id}-{digest}")


def step_row(row: Row, config: Mapping[str, Any]) -> Metrics:
    """A version's scores, over the updates that it is made of."""
    recipe = config["run"]
    updates = row["version"] * recipe["updates_per_round"] * recipe["passes"]
    names = {name: f"eval/{name}" for name in row if name.startswith(SHARED)}
    return {STEP: updates} | {names.get(name, name): value for name, value in row.items()}


def without_clock(row: Row) -> dict[str, Any]:
    """What is the same whenever a version is judged."""
    return {name: value for name, value in row.items() if not name.startswith("timing/")}


def digest_of(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:DIGITS]


def sent_file(folder: Path) -> Path:
    return folder / FILES / SENT


def already_sent(folder: Path) -> list[str]:
    """Digests of the evaluations that were told."""
    path = sent_file(folder)
    return read_json(path, list[str]) if path.exists() else []
