"""hydra/sweeper=rlhf_lab, the default: sweeps of runs that can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.plan_jobs import ContextSweeper
from rlhf_lab.sweeps.sweep import OF_RUNS, sweep


class TrackedSweeper(ContextSweeper):
    """Hydra's own sweeper for commands that make no runs; see rlhf_lab.sweeps for those that do."""

    def __init__(
        self, max_batch_size: int | None, params: Mapping[str, str] | None, **options: Any
    ) -> None:
        self._batch = max_batch_size
        super().__init__(params)
        self._options = SweeperOptions(**options)

    def sweep(self, arguments: list[str]) -> Any:
        """Run the jobs. Raises JobsFailed if some failed."""
        context = self.context
        if context.command not in OF_RUNS:
            # Hydra loads its own plugins anew when it looks for plugins.
            from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

            basic = BasicSweeper(self._batch, self.params)
            basic.setup(
                hydra_context=context.hydra,
                task_function=context.task_function,
                config=context.config,
            )
            return basic.sweep(arguments)
        return sweep(context, self.params, arguments, self._options)
