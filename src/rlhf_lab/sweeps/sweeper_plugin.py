"""The part that both sweepers of Hydra share: what Hydra passes to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rlhf_lab.sweeps.plan_jobs import Context


class ContextSweeper(Sweeper):  # type: ignore[misc]
    """Abstract, so that Hydra does not register it."""

    context: Context

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = dict(params or {})

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        command = getattr(task_function, "command", "")
        self.context = Context(hydra_context, task_function, config, command)
