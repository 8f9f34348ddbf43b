"""`rlhf-lab stages`: all that a run needs before it can train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config import Config
    from rlhf_lab.experiment.policy_loader import PolicyLoader
    from rlhf_lab.experiment.prepare import Artifact


def make_stages(config: Config, console: Console, loader: PolicyLoader | None = None) -> None:
    """Make every stage that the run needs, and report each."""
    from rlhf_lab.experiment.derived import has_references, trains_on_labels, trains_proxy
    from rlhf_lab.experiment.prepare import Artifacts

    artifacts = Artifacts(config, console, loader)
    if config.model.begins_by_stage:
        stage = "sft" if has_references(config) else "random weights of"
        report_artifact(console, f"{stage} {config.model.name}", artifacts.start(config.model))
    if trains_proxy(config) or trains_on_labels(config):
        report_artifact(console, "label", artifacts.labels())
    for proxy in artifacts.proxies():
        report_artifact(console, f"proxy reward model {config.proxy.name}", proxy)


def report_artifact(console: Console, stage: str, artifact: Artifact) -> None:
    """Print where a stage's artifact is, whether it was made now, and its metrics."""
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in artifact.metrics.items())
    origin = "from cache" if artifact.was_cached else "made"
    shown = f" ({numbers})" if numbers else ""
    console.print(f"{stage}: {origin} {artifact.folder}{shown}")


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import checked

    make_stages(*checked(cfg))


COMMAND = HydraCommand(
    "stages", "make SFT, labels and proxy of a run, and stop there", "task=tldr_nano", job=job
)
