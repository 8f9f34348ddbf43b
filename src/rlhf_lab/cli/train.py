"""`rlhf-lab train`: one run, and the stages that it needs and that are not cached."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import HydraCommand

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config import Config
    from rlhf_lab.runs.trackers.console import Console


def train(
    config: Config, console: Console, facts: Mapping[str, Any], may_make: bool = True
) -> Path:
    """Start a run, whose config is checked. Returns its folder. may_make: whether artifacts that it
    needs are made, if they are not found."""
    from rlhf_lab.experiment import lifecycle

    return lifecycle.train(config, console, facts, may_make=may_make)


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run

    start_run("train", train, cfg)


def job_of_run(cfg: DictConfig, may_make: bool) -> None:
    """The same for a run that goes on or is repeated: artifacts that it was made from, and that are
    gone, are made again only if they may."""
    from rlhf_lab.cli.compose import start_run

    start_run("train", functools.partial(train, may_make=may_make), cfg)


COMMAND = HydraCommand(
    "train",
    "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "task=tldr_nano algo=grpo mode=async seed=3",
    is_distributed=True,
    job=job,
)
