"""hydra/launcher=slurm: each job of a sweep is a Slurm job with its own result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from rlhf_lab.sweeps.launchers.slurm import SlurmOptions, launch


class SlurmLauncher(Launcher):  # type: ignore[misc]
    """Options: rlhf_lab.sweeps.launchers.slurm.SlurmOptions."""

    def __init__(self, **options: Any) -> None:
        plain: Any = OmegaConf.to_container(OmegaConf.create(options), resolve=True)
        self._options = SlurmOptions(**plain)
        self._setting: dict[str, Any] = {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._setting = {
            "hydra_context": hydra_context,
            "task_function": task_function,
            "config": config,
        }

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """How each job ended, in order; one that failed has its exception."""
        return launch(self._options, self._setting, job_overrides, initial_job_idx)
