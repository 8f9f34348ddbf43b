"""`rlhf-lab data`: what is in a task's splits, and a copy without what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(cfg: DictConfig) -> None:
    from rlhf_lab.experiment.checks import check_data
    from rlhf_lab.experiment.config import typed
    from rlhf_lab.experiment.data_report import inspect

    config = typed(cfg)
    check_data(config)
    inspect(config, Console(quiet=config.output.quiet))


COMMAND = HydraCommand(
    "data", "look at a task's rows: lengths, repeats, overlap of splits", "task=gsm8k", job=job
)
