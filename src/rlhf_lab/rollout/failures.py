"""What follows when a generator process is killed, hangs or raises."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from rlhf_lab.rollout.mode_choices import OnFailure


class GeneratorFailure(RuntimeError):
    """A generator process was killed or hung: the message names it and the chunk at work."""


@dataclass(frozen=True)
class FailurePolicy:
    """Whether a generator that fails is restarted, and where failures are reported."""

    on_failure: OnFailure
    hang_seconds: float
    max_restarts: int
    report: Callable[[str], None]

    def may_restart(self, restarts: int) -> bool:
        """Whether a generator may be restarted after so many restarts."""
        return self.on_failure is OnFailure.restart and restarts < self.max_restarts

    def report_restart(self, number: int, restarts: int, error: Exception) -> None:
        """Tell that a generator is restarted for the `restarts`-th time, and why."""
        detail = "".join(traceback.format_exception(error))
        self.report(
            f"generator {number} failed and is started again ({restarts} of "
            f"{self.max_restarts} times); its chunks are generated anew, with the same bits\n"
            f"{detail}"
        )
