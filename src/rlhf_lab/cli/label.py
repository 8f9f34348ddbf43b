"""`rlhf-lab label`: pairs of samples of the SFT policy, in the order of the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.cli.stages import report_artifact

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage

    config, console = stage(cfg)
    from rlhf_lab.experiment.prepare import Artifacts

    report_artifact(console, "label", Artifacts(config, console).labels())


COMMAND = HydraCommand(
    "label",
    "sample pairs from the SFT policy and order them by the gold judge",
    "task=tldr_nano labels.pairs=512",
    job=job,
)
