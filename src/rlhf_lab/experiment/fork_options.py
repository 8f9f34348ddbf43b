"""Config node `fork`: the run and the round that a run goes on from, with other settings."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class ForkOptions(limits.Limited, key="fork"):
    """The run and the round that this one goes on from; `rlhf-lab fork RUN round=R` sets them."""

    parent: str = limits.option(
        "", about="Folder of the run that this one is a fork of; empty for a run of its own."
    )
    round: int = limits.count(
        0,
        least=0,
        about="Rounds that a fork shares with its parent; its settings hold from this one on.",
    )
    without_rows: list[int] = limits.collection(
        list,
        least=0,
        most=limits.MOST,
        about=(
            "Rows of the batch of round `fork.round`, in the order of its prompts and of their "
            "samples, that no update is made from; they still count in the baselines of others."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.without_rows and not self.parent:
            raise UserError(
                "fork.without_rows without fork.parent: rows are left out of one round of a fork, "
                "as `rlhf-lab fork RUN round=10 fork.without_rows=[0,1]` does"
            )
        if self.round and not self.parent:
            raise UserError(
                f"fork.round={self.round} without fork.parent: name the run, as "
                f"`rlhf-lab fork RUN round={self.round}` does"
            )

    @property
    def is_on(self) -> bool:
        return bool(self.parent)
