"""The trackers that mirror a run's JSONL record: the name of a run there, by which Open RL
Benchmark finds it, and its rounds and evaluations, each sent once, however often the run is
resumed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rlhf_lab.runs.reading import read_json
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.runs.trackers.options import TAG_CHARACTERS, Tracker, TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.tensorboard import EVALUATIONS, EVENTS, TensorBoardTracker
from rlhf_lab.runs.trackers.wandb import FILES, STEP, WandbOptions, WandbTracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError

JobType = Literal["train", "evaluate"]
# Where one swept key ends and the next begins: values may have commas.
BETWEEN = re.compile(r",(?=[\w./@]+=)")
# Swept keys that a condition leaves out of its name: task and model are the environment, the method
# is named anyway, and the seed is what a condition is repeated over.
NAMED_ANYWAY = ("seed", "stage_seed", "tuned", "task", "model", "algo", "mode", "correction")
# What Open RL Benchmark's filters, which are written like addresses, would take apart.
NOT_IN_FILTERS = re.compile(r"[^\w.+=@-]+")
Warn = Callable[[str], None]
TABLES = 50
Row = Mapping[str, Any]
SENT = "evaluations.json"
# Metrics that rounds of training have under the same names.
SHARED = "sample/"
DIGITS = 8


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it. config: plain data, with its parts' names. commit: of the code, in
    8 digits; '' if unknown."""

    folder: Path
    config: Mapping[str, Any]
    run_id: str
    job_type: JobType = "train"
    commit: str = ""

    def option(self, group: str) -> str:
        """The option of a config group that was chosen; '' where there is none."""
        part = self.config.get(group)
        return str(part["name"]) if isinstance(part, Mapping) and "name" in part else ""


def env_id(run: TrackedRun) -> str:
    """Task and initial policy. Scores are comparable only within one pair of them, so a benchmark
    has a panel for each."""
    return "-".join(filter(None, (run.option("task"), run.option("model"))))


def exp_name(run: TrackedRun, condition: str) -> str:
    """The condition that is compared within an environment: method, mode, and what else a sweep
    varies. Runs that differ only in their seed share it; later evaluations have another."""
    correction = run.option("correction")
    method = [run.option("algo"), run.option("mode"), "" if correction == "none" else correction]
    swept = [
        text for text in BETWEEN.split(condition) if text.partition("=")[0] not in NAMED_ANYWAY
    ]
    ending = ["evaluate"] if run.job_type == "evaluate" else []
    name = "-".join(filter(None, [*method, *swept, *ending]))
    return NOT_IN_FILTERS.sub("_", name)


def run_name(run: TrackedRun, options: TrackerOptions) -> str:
    """Condition and seed for a run of a sweep, where the folder's name is the seed alone; the
    folder's name for any other."""
    if not options.sweep:
        return run.folder.name
    return f"{exp_name(run, options.condition)}-seed{run.config['seed']}"


def group(run: TrackedRun, options: TrackerOptions) -> str:
    """The sweep; without one, the folder that holds the run's."""
    return options.wandb_group or options.sweep or run.folder.absolute().parent.name


def tags(run: TrackedRun, options: TrackerOptions) -> tuple[str, ...]:
    """Sweep, task, algorithm, mode, model, code and the user's own, each once."""
    chosen = [run.option(part) for part in ("task", "algo", "mode", "model")]
    texts = [options.sweep, *chosen, run.commit, *options.wandb_tags]
    return tuple(dict.fromkeys(text[:TAG_CHARACTERS] for text in texts if text))


class Mirror(Tracker):
    """A tracker that the run can do without: it is dropped at its first error, with a warning.

    start: steps below it were sent before the run was resumed.
    """

    def __init__(self, name: str, tracker: Tracker, start: int, warn: Warn) -> None:
        self._name = name
        self._tracker: Tracker | None = tracker
        self._start = start
        self._warn = warn

    def log(self, metrics: Metrics, step: int) -> None:
        if self._tracker is not None and step >= self._start:
            self._try(self._tracker.log, metrics, step)

    def log_samples(self, samples: Sequence[RolloutSample]) -> None:
        # A plugin's tracker may be a class without a base.
        if isinstance(self._tracker, Tracker) and samples[0].round >= self._start:
            self._try(self._tracker.log_samples, samples)

    def close(self) -> None:
        if self._tracker is not None:
            self._try(self._tracker.close)

    def _try(self, send: Callable[..., None], *arguments: Any) -> None:
        try:
            send(*arguments)
        except Exception as error:
            self._tracker = None
            self._warn(
                f"tracker {self._name} failed and gets no more rows; metrics.jsonl has every round "
                f"({type(error).__name__}: {error})"
            )


def open_mirrors(options: TrackerOptions, run: TrackedRun, start: int, warn: Warn) -> list[Mirror]:
    """Open every chosen mirror of the run; none by default. start: first step to send. warn: also
    prints where the run is shown."""
    opened: list[Mirror] = []
    if options.tensorboard:
        board = TensorBoardTracker(run.folder / EVENTS)
        board.describe(run.config)
        opened.append(Mirror("tensorboard", board, start, warn))
    if options.wandb is not WandbMode.off:
        tracker = open_wandb(options, run)
        if tracker.url:
            warn(f"Weights & Biases: {tracker.url}")
        opened.append(Mirror("wandb", tracker, start, warn))
    if (own := options.open(run)) is not None:
        opened.append(Mirror(options.name, own, start, warn))
    return opened


def open_wandb(options: TrackerOptions, run: TrackedRun, id_: str = "") -> WandbTracker:
    """Open the run at Weights & Biases; its id lets a resumed run go on there.

    id_: of another run at Weights & Biases about the same folder.
    """
    wandb_options = WandbOptions(
        mode="online" if options.wandb is WandbMode.online else "offline",
        project=options.wandb_project,
        entity=options.wandb_entity,
        group=group(run, options),
        name=run_name(run, options),
        tags=tags(run, options),
        id=id_ or run.run_id,
        job_type=run.job_type,
        table_rounds=table_rounds(run),
    )
    # The keys by which Open RL Benchmark filters.
    keys = {"env_id": env_id(run), "exp_name": exp_name(run, options.condition)}
    return WandbTracker(wandb_options, run.folder, {**run.config, **keys})


def table_rounds(run: TrackedRun) -> int:
    """Rounds whose samples are sent together, so that a run sends at most TABLES tables."""
    options = run.config.get("run", {})
    per_round = options.get("updates_per_round", 1) * options.get("passes", 1)
    rounds = int(options.get("updates", 1) // per_round)
    return max(1, math.ceil(rounds / TABLES))


def mirror_evaluation(
    options: TrackerOptions, run: TrackedRun, rows: Sequence[Row], warn: Warn
) -> None:
    """Send the evaluation that ends a run to the trackers that mirror it, by the updates that made
    each version."""
    # Without the columns that differ when a version is judged again.
    scores = [
        {name: value for name, value in row.items() if not name.startswith("timing/")}
        for row in rows
    ]
    # TensorBoard has no place for a second evaluation of a run.
    if options.tensorboard and not sent_digests(run.folder, EVENTS):
        events = TensorBoardTracker(run.folder / EVENTS, EVALUATIONS)
        mirror = Mirror("tensorboard", events, 0, warn)
        for row in scores:
            found = step_row(row, run.config)
            mirror.log(found, found.pop(STEP))
        mirror.close()
        note_sent(run.folder, EVENTS, [digest_of(scores)])
    if options.wandb is not WandbMode.off:
        send_to_wandb(options, run, scores, warn)


def send_to_wandb(
    options: TrackerOptions, run: TrackedRun, scores: Sequence[Row], warn: Warn
) -> None:
    """Send the evaluation that ends a run as further steps of the run, and any later one that
    differs from it as another run, with the job type `evaluate`."""
    sent, digest = sent_digests(run.folder), digest_of(scores)
    if digest in sent:
        return
    is_own = run.job_type == "train" and not sent
    first = int(run.config["run"]["updates"]) if is_own else 0
    try:
        own = replace(run, job_type="evaluate"), f"{run.run_id}-{digest}"
        tracker = open_wandb(options, run) if is_own else open_wandb(options, *own)
    except UserError as error:
        warn(f"the evaluation is in evals.jsonl, but could not be sent elsewhere: {error}")
        return
    mirror = Mirror("wandb", tracker, 0, warn)
    for step, row in enumerate(scores, start=first):
        mirror.log(step_row(row, run.config), step)
    mirror.close()
    note_sent(run.folder, FILES, [*sent, digest])


def step_row(row: Row, config: Mapping[str, Any]) -> Metrics:
    """A version's scores at the number of optimizer updates that made it."""
    recipe = config["run"]
    updates = row["version"] * recipe["updates_per_round"] * recipe["passes"]
    names = {name: f"eval/{name}" for name in row if name.startswith(SHARED)}
    return {STEP: updates} | {names.get(name, name): value for name, value in row.items()}


def digest_of(rows: Sequence[Row]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:DIGITS]


def sent_digests(folder: Path, mirror: str = FILES) -> list[str]:
    """Digests of the evaluations that a mirror has. mirror: its folder in the run's."""
    path = folder / mirror / SENT
    return read_json(path, list[str]) if path.exists() else []


def note_sent(folder: Path, mirror: str, digests: Sequence[str]) -> None:
    (folder / mirror / SENT).write_text(json.dumps(list(digests)) + "\n", encoding="utf-8")
