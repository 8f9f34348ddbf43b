"""Config group `tracker`: mirrors of the JSONL record, which is always written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import UserError


class WandbMode(StrEnum):
    """Where Weights & Biases keeps the mirror."""

    off = "off"
    online = "online"
    offline = "offline"


@dataclass(frozen=True)
class TrackerOptions:
    """wandb_* name the run there; wandb_group defaults to the sweep's folder when empty.

    probe_groups: groups per round on which the three gaps between behaviour and policy are
    measured, by up to three forward passes (0: not at all). reference_groups: groups per round
    whose KL to the reference is measured where the algorithm itself does not ask for it, which
    costs a forward pass (-1: all).
    """

    name: str = "jsonl"
    tensorboard: bool = False
    wandb: WandbMode = WandbMode.off
    wandb_project: str = "rlhf_lab"
    wandb_entity: str = ""
    wandb_group: str = ""
    probe_groups: int = 1
    reference_groups: int = -1

    def __post_init__(self) -> None:
        if self.probe_groups < 0:
            raise UserError(f"tracker.probe_groups={self.probe_groups}: choose 0 or more")
        if self.reference_groups < 1 and self.reference_groups != -1:
            raise UserError(
                f"tracker.reference_groups={self.reference_groups}: choose 1 or more, or -1 for all"
            )
