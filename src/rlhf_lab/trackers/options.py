"""Config group `tracker`: mirrors of the JSONL record, which is always written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WandbMode(StrEnum):
    """Where Weights & Biases keeps the mirror."""

    off = "off"
    online = "online"
    offline = "offline"


@dataclass(frozen=True)
class TrackerOptions:
    """wandb_* name the run there; wandb_group defaults to the sweep's folder when empty."""

    name: str = "jsonl"
    tensorboard: bool = False
    wandb: WandbMode = WandbMode.off
    wandb_project: str = "rlhf_lab"
    wandb_entity: str = ""
    wandb_group: str = ""
