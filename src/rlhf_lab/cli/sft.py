"""`rlhf-lab sft`: fine-tune the policy on the task's reference answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.cli.stages import report_artifact

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage

    config, console = stage(cfg, judges=False)
    from rlhf_lab.experiment.prepare import Artifacts
    from rlhf_lab.training.engines.broadcast_engine import STOP
    from rlhf_lab.training.engines.distributed import main_rank

    with main_rank(STOP):
        report_artifact(console, "sft", Artifacts(config, console).sft(config.model))


COMMAND = HydraCommand(
    "sft",
    "fine-tune the policy on reference answers",
    "task=tldr_nano model=nano_m",
    job=job,
    is_distributed=True,
)
