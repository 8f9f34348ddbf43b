"""`rlhf-lab relabel`: the user's own pairs, in the order of the judge."""

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

    report_artifact(console, "relabel", Artifacts(config, console).relabel())


COMMAND = HydraCommand(
    "relabel", "order preference pairs by the judge", "labels.path=FILE", job=job
)
