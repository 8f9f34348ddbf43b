"""`rlhf-lab train`: one run, and the stages that it needs and that are not cached."""

from __future__ import annotations

import functools

from omegaconf import DictConfig

from rlhf_lab.cli.command import HydraCommand


def job(cfg: DictConfig) -> None:
    from rlhf_lab.cli.compose import start_run
    from rlhf_lab.experiment.lifecycle import train

    start_run("train", train, cfg)


def job_of_run(cfg: DictConfig, may_make: bool) -> None:
    """The same for a run that goes on or is repeated: artifacts that it was made from, and that are
    gone, are made again only if they may."""
    from rlhf_lab.cli.compose import start_run
    from rlhf_lab.experiment.lifecycle import train

    start_run("train", functools.partial(train, may_make=may_make), cfg)


COMMAND = HydraCommand(
    "train",
    "train a policy (SFT, labels and proxy are made first, or found in the cache)",
    "task=tldr_nano algo=grpo mode=async seed=3",
    is_distributed=True,
    job=job,
)
