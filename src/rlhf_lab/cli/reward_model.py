"""`rlhf-lab reward-model`: the proxy reward model, or all members of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.cli.stages import report_artifact
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config import Config
    from rlhf_lab.training.stages.reward_model import Bin


def train_reward_models(config: Config, console: Console) -> None:
    """Train what config.reward_model describes, and show how well it is calibrated."""
    from rlhf_lab.experiment.prepare import Artifacts
    from rlhf_lab.training.stages.reward_model import read_calibration

    artifacts = Artifacts(config, console)
    if config.reward_model.steps:
        report_artifact(console, "step reward model", artifacts.step_model())
        return
    if config.reward_model.strength_members:
        report_artifact(console, "strength of preferences", artifacts.strength())
    for artifact in artifacts.proxies() or [artifacts.reward_model()]:
        report_artifact(console, "reward model", artifact)
        show_calibration(console, read_calibration(artifact.folder))


def show_calibration(console: Console, bins: Sequence[Bin]) -> None:
    """A table of the model's predictions for held-out pairs, and of how often they came true."""
    console.table(
        "calibration on held-out pairs, in random order",
        ["probability that the first is better", "pairs", "mean prediction", "came true"],
        [
            [
                f"{part.low:.1f} to {part.high:.1f}",
                str(part.count),
                f"{part.predicted:.3f}",
                f"{part.observed:.3f}",
            ]
            for part in bins
        ],
    )


def judges_pairs(cfg: DictConfig) -> bool:
    """Whether the judge orders the pairs, which are sampled; those of a file are in order."""
    return not cfg.labels.path and not cfg.reward_model.steps


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage
    from rlhf_lab.experiment.checks_references import require_references

    config, console = stage(cfg, judges_pairs(cfg))
    if not config.reward_model.steps:
        require_references(config, "a proxy")
    from rlhf_lab.training.engines.broadcast_engine import STOP
    from rlhf_lab.training.engines.distributed import main_rank

    with main_rank(STOP):
        train_reward_models(config, console)


COMMAND = HydraCommand(
    "reward-model",
    "train the proxy reward model on the labelled pairs",
    "task=tldr_nano model@proxy=nano_m",
    job=job,
    is_distributed=True,
)
