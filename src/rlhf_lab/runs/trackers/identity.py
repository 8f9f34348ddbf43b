"""As what a run appears at Weights & Biases: the keys by which Open RL Benchmark finds it."""

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
# Told elsewhere: task and model are the environment, the method is named anyway, and the seed is
# what a condition is repeated over.
TOLD = ("seed", "task", "model", "algo", "mode", "correction")
# What Open RL Benchmark's filters, which are written like addresses, would take apart.
NOT_IN_FILTERS = re.compile(r"[^\w.+=@-]+")


@dataclass(frozen=True)
class Tracked:
    """What a run tells its mirrors of itself. config: plain data, with its parts' names. command:
    what it was started by; commit: short, '' if unknown."""

    folder: Path
    config: Mapping[str, Any]
    run_id: str
    job_type: JobType = "train"
    commit: str = ""

    def named(self, part: str) -> str:
        """The option that a part of the config was chosen by; '' where there is none."""
        chosen = self.config.get(part)
        return str(chosen["name"]) if isinstance(chosen, Mapping) and "name" in chosen else ""


def env_id(run: Tracked) -> str:
    """The task and the policy that begins: scores of two such are not of one scale, so that a
    benchmark has a panel for each."""
    return "-".join(filter(None, (run.named("task"), run.named("model"))))


def exp_name(run: Tracked, condition: str) -> str:
    """What is compared within an environment: method, mode, and what else a sweep varies. Runs
    that differ only in their seed share it; other evaluations of a run have names of their own."""
    correction = run.named("correction")
    method = [run.named("algo"), run.named("mode"), "" if correction == "none" else correction]
    swept = [text for text in BETWEEN.split(condition) if text.partition("=")[0] not in TOLD]
    ending = ["evaluate"] if run.job_type == "evaluate" else []
    name = "-".join(filter(None, [*method, *swept, *ending]))
    return NOT_IN_FILTERS.sub("_", name)


def run_name(run: Tracked, options: TrackerOptions) -> str:
    """A sweep's run by condition and seed, since its folder's name is the seed alone; any other by
    its folder."""
    if not options.sweep:
        return run.folder.name
    return f"{exp_name(run, options.condition)}-seed{run.config['seed']}"


def group(run: Tracked, options: TrackerOptions) -> str:
    """The sweep; without one, the folder that the run's stands in."""
    return options.wandb_group or options.sweep or run.folder.absolute().parent.name


def tags(run: Tracked, options: TrackerOptions) -> tuple[str, ...]:
    """Sweep, task, algorithm, mode, model, code and the user's own, each once."""
    chosen = [run.named(part) for part in ("task", "algo", "mode", "model")]
    found = [options.sweep, *chosen, run.commit, *options.wandb_tags]
    return tuple(dict.fromkeys(text[:TAG_CHARACTERS] for text in found if text))


def told(run: Tracked, options: TrackerOptions) -> dict[str, Any]:
    """The config as it is told: the whole of it, and the keys of Open RL Benchmark."""
    keys = {"env_id": env_id(run), "exp_name": exp_name(run, options.condition)}
    return {**run.config, **keys}
