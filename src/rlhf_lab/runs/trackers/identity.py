"""Name, group, tags and config of a run at Weights & Biases, where Open RL Benchmark finds it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_lab.runs.trackers.options import TAG_CHARACTERS, TrackerOptions

JobType = Literal["train", "evaluate"]
# Where one swept key ends and the next begins: values may have commas.
BETWEEN = re.compile(r",(?=[\w./@]+=)")
# Swept keys that a condition leaves out of its name: task and model are the environment, the method
# is named anyway, and the seed is what a condition is repeated over.
NAMED_ANYWAY = ("seed", "stage_seed", "tuned", "task", "model", "algo", "mode", "correction")
# What Open RL Benchmark's filters, which are written like addresses, would take apart.
NOT_IN_FILTERS = re.compile(r"[^\w.+=@-]+")


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
    """Condition and seed for a run of a sweep, whose folder's name is the seed alone; the folder's
    name for any other."""
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


def tracker_config(run: TrackedRun, options: TrackerOptions) -> dict[str, Any]:
    """The config as it is sent to trackers, with the keys by which Open RL Benchmark filters."""
    keys = {"env_id": env_id(run), "exp_name": exp_name(run, options.condition)}
    return {**run.config, **keys}
