"""`rlhf-lab pipeline`: all stages, each reported, then a run with its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.cli.stages import make_stages
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config import Config


def run_pipeline(config: Config, console: Console, facts: Mapping[str, Any]) -> Path:
    """All stages, then training and evaluation. Returns the run's folder."""
    from rlhf_lab.experiment import lifecycle
    from rlhf_lab.experiment.policy_loader import PolicyLoader

    loader = PolicyLoader(console)
    lifecycle.preload_processes(config)
    make_stages(config, console, loader)
    return lifecycle.train(config, console, facts, loader)


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run

    start_run("pipeline", run_pipeline, cfg)


COMMAND = HydraCommand(
    "pipeline",
    "SFT, labels, proxy, training and evaluation, each reported",
    "task=tldr_nano algo=grpo",
    is_distributed=True,
    job=job,
)
