"""Config group `checkpoint`: when a run saves what it can go on from."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class CheckpointOptions(limits.OptionGroup, key="checkpoint"):
    """When a run saves what it can go on from; a run that is stopped or loses a generator saves
    too, unless rounds, minutes and keep_every are all 0."""

    name: str = limits.name("minutes")
    rounds: int = limits.count(
        0, min=0, about="Rounds between checkpoints; 0 does not count rounds."
    )
    minutes: float = limits.number(
        10.0, min=0, max=1e7, about="Minutes between checkpoints; 0 does not count minutes."
    )
    keep: int = limits.count(
        2, max=10**6, about="Checkpoints that stay on disk, in addition to those of keep_every."
    )
    keep_every: int = limits.count(
        0,
        min=0,
        about=(
            "Rounds between checkpoints that are never deleted, for `rlhf-lab fork`; 0 keeps none."
        ),
    )
    pause_round: int = limits.count(
        0,
        min=0,
        about=(
            "Rounds after which the run saves a checkpoint and ends for now; 0 is none. Resumed "
            "without it, the run ends with the bits of one that never paused."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pause_round and not self.is_on:
            raise UserError(
                f"checkpoint.pause_round={self.pause_round} with checkpoint={self.name}: a run "
                "that pauses needs a checkpoint to go on from; pass checkpoint=minutes"
            )

    @property
    def is_on(self) -> bool:
        return self.rounds > 0 or self.minutes > 0 or self.keep_every > 0

    def is_kept(self, round_: int) -> bool:
        """Whether the checkpoint of this round is never deleted."""
        return self.keep_every > 0 and round_ % self.keep_every == 0
