"""Config group `mode`: how stale samples may be, and who generates them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import UserError


class ExecutorKind(StrEnum):
    """Where generation runs: in the trainer's time, in a thread, or in a process of its own."""

    inline = "inline"
    thread = "thread"
    process = "process"


@dataclass(frozen=True)
class Mode:
    """max_staleness (S): largest lag in rounds. num_generators: workers of a background executor.

    Neither the executor nor the number of generators changes a single bit of the result.
    """

    name: str = "sync"
    max_staleness: int = 0
    executor: ExecutorKind = ExecutorKind.inline
    num_generators: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.max_staleness <= 1024:
            raise UserError(
                f"mode.max_staleness={self.max_staleness} is out of range: choose 0 (synchronous) "
                "to 1024 rounds"
            )
        if self.name == "sync" and self.max_staleness:
            raise UserError(
                f"mode.max_staleness={self.max_staleness} with mode=sync: sync means 0; "
                "pass mode=lagged (stale, without concurrency) or mode=async"
            )
        if self.num_generators < 1:
            raise UserError(f"mode.num_generators={self.num_generators}: choose 1 or more")
        if self.executor is ExecutorKind.inline and self.num_generators > 1:
            raise UserError(
                f"mode.num_generators={self.num_generators} with mode.executor=inline: "
                "the trainer generates by itself; pass mode.executor=process"
            )

    @property
    def num_background(self) -> int:
        """Generators that run beside the trainer."""
        return 0 if self.executor is ExecutorKind.inline else self.num_generators
