"""The mirrors that a run's options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.trackers.tensorboard import TensorBoardTracker
from rlhf_lab.trackers.wandb import WandbOptions, WandbTracker
from rlhf_lab.types import Tracker


def mirrors(options: TrackerOptions, folder: Path, config: Mapping[str, Any]) -> list[Tracker]:
    """Open every chosen mirror of the run in `folder`; none by default.

    At Weights & Biases the run is named after its folder, and grouped with its neighbours there
    unless a group is given.
    """
    opened: list[Tracker] = []
    if options.tensorboard:
        opened.append(TensorBoardTracker(folder / "tensorboard"))
    if options.wandb is not WandbMode.off:
        named = WandbOptions(
            mode="online" if options.wandb is WandbMode.online else "offline",
            project=options.wandb_project,
            entity=options.wandb_entity,
            group=options.wandb_group or folder.absolute().parent.name,
            name=folder.name,
        )
        opened.append(WandbTracker(named, folder, config))
    return opened
