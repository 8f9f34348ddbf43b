"""`rlhf-lab train`: one run, and the stages that it needs and that are not cached."""

from __future__ import annotations

from omegaconf import DictConfig

from rlhf_lab.cli.command import HydraCommand


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run
    from rlhf_lab.experiment.lifecycle import train

    start_run("train", train, cfg)


COMMAND = HydraCommand(
    "train",
    "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "task=tldr_nano algo=grpo mode=async seed=3",
    is_distributed=True,
    job=job,
)
