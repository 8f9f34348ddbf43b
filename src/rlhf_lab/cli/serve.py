"""`rlhf-lab serve`: a vLLM server for runs on any host."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rlhf_lab.cli.command import HydraCommand

if TYPE_CHECKING:
    from omegaconf import DictConfig


def job(cfg: DictConfig) -> None:
    """Become the server of runs with this config, until it is stopped."""
    from rlhf_lab.cli.compose import checked

    config, console = checked(cfg)
    from rlhf_lab.experiment.build_rollout import build_server

    command = build_server(config)
    console.print(f"starting {' '.join(command.words)}")
    sys.stdout.flush()
    os.execve(command.words[0], command.words, os.environ | command.variables)


COMMAND = HydraCommand(
    "serve",
    "a vLLM server for runs on any host",
    "generator=vllm_server generator.port=8100 model=pythia_410m",
    job=job,
)
