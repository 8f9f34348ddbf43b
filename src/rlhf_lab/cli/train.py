"""`rlhf-lab train`, `pipeline`, `resume`, `replay` and `fork`: one run, and the stages that it
needs and that are not cached.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.arguments import overrides_of_fork, overrides_of_replay, overrides_to_resume
from rlhf_lab.cli.command import HydraCommand, RunCommand
from rlhf_lab.cli.stages import make_stages
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config.config import Config


def start(
    config: Config, console: Console, facts: Mapping[str, Any], may_make: bool = True
) -> Path:
    """Start a run, whose config is checked. Returns its folder. may_make: whether artifacts that it
    needs are made, if they are not found."""
    from rlhf_lab.experiment.run import lifecycle

    return lifecycle.train(config, console, facts, may_make=may_make)


def train(cfg: DictConfig, may_make: bool = True) -> None:
    from rlhf_lab.cli.compose import start_run

    start_run("train", functools.partial(start, may_make=may_make), cfg)


def start_pipeline(config: Config, console: Console, facts: Mapping[str, Any]) -> Path:
    """All stages, each reported, then training and evaluation. Returns the run's folder."""
    from rlhf_lab.experiment.build.policy import PolicyLoader
    from rlhf_lab.experiment.run import lifecycle

    loader = PolicyLoader(console)
    lifecycle.preload_processes(config)
    make_stages(config, console, loader)
    return lifecycle.train(config, console, facts, loader)


def pipeline(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run

    start_run("pipeline", start_pipeline, cfg)


TRAIN = HydraCommand(
    "train",
    "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "task=tldr_nano algo=grpo mode=async seed=3",
    is_distributed=True,
    job=train,
)
PIPELINE = HydraCommand(
    "pipeline",
    "SFT, labels, proxy, training and evaluation, each reported",
    "task=tldr_nano algo=grpo",
    is_distributed=True,
    job=pipeline,
)
RESUME = RunCommand(
    "resume",
    "go on with a run that ended early",
    "runs/RUN",
    usage="RUN [key=value ...] [--make-stages] [--trust]",
    is_distributed=True,
    job=train,
    job_of_run=train,
    job_command=TRAIN.name,
    of_run=overrides_to_resume,
)
REPLAY = RunCommand(
    "replay",
    "repeat a run's recorded schedule bit for bit",
    "runs/RUN output.dir=runs/again",
    usage="RUN [key=value ...] [--make-stages] [--trust]",
    is_distributed=True,
    job=train,
    job_of_run=train,
    job_command=TRAIN.name,
    of_run=overrides_of_replay,
)
FORK = RunCommand(
    "fork",
    "go on from a round of a run in a new folder, with other settings",
    "runs/RUN round=10 correction=truncated_is",
    usage="RUN round=R [key=value ...] [-m for a sweep] [--make-stages] [--trust]",
    is_distributed=True,
    job=train,
    job_of_run=train,
    job_command=TRAIN.name,
    of_run=overrides_of_fork,
)
