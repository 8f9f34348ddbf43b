"""Config group `tracker`: mirrors of the JSONL record, which is always written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

# The longest tag that Weights & Biases takes.
TAG_CHARACTERS = 64


class WandbMode(StrEnum):
    """Where Weights & Biases keeps the mirror."""

    off = "off"
    online = "online"
    offline = "offline"


@dataclass(frozen=True)
class TrackerOptions(limits.Limited, key="tracker"):
    """wandb_* name the run there; an empty wandb_group is the sweep, or else the folder above the
    run's. wandb_tags: besides those that every run has (docs/tracking.md). sweep, condition: the
    sweep that the run is a job of, and its swept keys, KEY=VALUE,...; a sweep sets both.

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
    wandb_tags: list[str] = field(default_factory=list)
    sweep: str = ""
    condition: str = ""
    probe_groups: int = limits.count(1, least=0)
    reference_groups: int = limits.count(-1, also={-1: "for all"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for tag in self.wandb_tags:
            if not 1 <= len(tag) <= TAG_CHARACTERS:
                raise UserError(
                    f"tracker.wandb_tags: {tag!r} has {len(tag)} characters: choose 1 to "
                    f"{TAG_CHARACTERS} for each"
                )
