"""`rlhf-lab train`: one run, and the stages that it needs and that are not cached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import HydraCommand

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config import Config
    from rlhf_lab.runs.trackers.console import Console


def train(config: Config, console: Console, facts: Mapping[str, Any]) -> None:
    """Start a run, whose config is checked."""
    from rlhf_lab.experiment import lifecycle

    lifecycle.train(config, console, facts)


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run

    start_run("train", train, cfg)


COMMAND = HydraCommand(
    "train",
    "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "task=tldr_nano algo=grpo mode=async seed=3",
    is_distributed=True,
    job=job,
)
