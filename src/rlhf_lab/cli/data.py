"""`rlhf-lab data`: what is in a task's splits, and a copy without what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import checked

    config, console = checked(cfg)
    from rlhf_lab.experiment.data_report import inspect

    inspect(config, console)


COMMAND = HydraCommand(
    "data", "look at a task's rows: lengths, repeats, overlap of splits", "task=gsm8k", job=job
)
