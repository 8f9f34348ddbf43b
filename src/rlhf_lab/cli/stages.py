"""`rlhf-lab stages`, `sft`, `label`, `relabel` and `reward-model`: what a run needs before it can
train; and `rlhf-lab data`: what is in its task's splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand
from rlhf_lab.runs.trackers.console import Console

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.artifacts.prepare import Artifact
    from rlhf_lab.experiment.build.policy import PolicyLoader
    from rlhf_lab.experiment.config.config import Config
    from rlhf_lab.training.stages.reward_model import Bin


def make_stages(config: Config, console: Console, loader: PolicyLoader | None = None) -> None:
    """Make every stage that the run needs, and report each."""
    from rlhf_lab.experiment.artifacts.prepare import Artifacts
    from rlhf_lab.experiment.rules.derived import has_references, trains_on_labels, trains_proxy

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


def stages(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import checked

    make_stages(*checked(cfg))


def sft(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage

    config, console = stage(cfg, judges=False)
    from rlhf_lab.experiment.artifacts.prepare import Artifacts
    from rlhf_lab.training.engines.broadcast_engine import STOP
    from rlhf_lab.training.engines.distributed import main_rank

    with main_rank(STOP):
        report_artifact(console, "sft", Artifacts(config, console).sft(config.model))


def label(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage

    config, console = stage(cfg)
    from rlhf_lab.experiment.artifacts.prepare import Artifacts

    report_artifact(console, "label", Artifacts(config, console).labels())


def relabel(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage

    config, console = stage(cfg)
    from rlhf_lab.experiment.artifacts.prepare import Artifacts

    report_artifact(console, "relabel", Artifacts(config, console).relabel())


def reward_model(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import stage
    from rlhf_lab.experiment.rules.models import require_references

    config, console = stage(cfg, judges_pairs(cfg))
    if not config.reward_model.steps:
        require_references(config, "a proxy")
    from rlhf_lab.training.engines.broadcast_engine import STOP
    from rlhf_lab.training.engines.distributed import main_rank

    with main_rank(STOP):
        train_reward_models(config, console)


def judges_pairs(cfg: DictConfig) -> bool:
    """Whether the judge orders the pairs, which are sampled; those of a file are in order."""
    return not cfg.labels.path and not cfg.reward_model.steps


def train_reward_models(config: Config, console: Console) -> None:
    """Train what config.reward_model describes, and show how well it is calibrated."""
    from rlhf_lab.experiment.artifacts.prepare import Artifacts
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


def data(cfg: DictConfig) -> None:
    from rlhf_lab.experiment.config.typed import typed
    from rlhf_lab.experiment.data.report import inspect
    from rlhf_lab.experiment.rules.checks import check_data

    config = typed(cfg)
    check_data(config)
    inspect(config, Console(quiet=config.output.quiet))


STAGES = HydraCommand(
    "stages", "make SFT, labels and proxy of a run, and stop there", "task=tldr_nano", job=stages
)
SFT = HydraCommand(
    "sft",
    "fine-tune the policy on reference answers",
    "task=tldr_nano model=nano_m",
    job=sft,
    is_distributed=True,
)
LABEL = HydraCommand(
    "label",
    "sample pairs from the SFT policy and order them by the gold judge",
    "task=tldr_nano labels.pairs=512",
    job=label,
)
RELABEL = HydraCommand(
    "relabel", "order preference pairs by the judge", "labels.path=FILE", job=relabel
)
REWARD_MODEL = HydraCommand(
    "reward-model",
    "train the proxy reward model on the labelled pairs",
    "task=tldr_nano model@proxy=nano_m",
    job=reward_model,
    is_distributed=True,
)
DATA = HydraCommand(
    "data", "look at a task's rows: lengths, repeats, overlap of splits", "task=gsm8k", job=data
)
