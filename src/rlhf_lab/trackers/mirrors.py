"""The mirrors that a run's options ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.trackers.tensorboard import TensorBoardTracker
from rlhf_lab.trackers.wandb import WandbOptions, WandbTracker
from rlhf_lab.types import Metrics, Tracker


class Mirror:
    """A tracker that may be lost without the run: its first error is told, and it is left alone.

    Steps below `start` are there already, from before the run was resumed.
    """

    def __init__(self, name: str, tracker: Tracker, start: int, say: Callable[[str], None]) -> None:
        self._name = name
        self._tracker: Tracker | None = tracker
        self._start = start
        self._say = say

    def log(self, metrics: Metrics, step: int) -> None:
        if self._tracker is None or step < self._start:
            return
        try:
            self._tracker.log(metrics, step)
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        if self._tracker is None:
            return
        try:
            self._tracker.close()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = None
        self._say(
            f"tracker {self._name} failed and is left alone from here on; metrics.jsonl has every "
            f"round ({type(error).__name__}: {error})"
        )


def mirrors(
    options: TrackerOptions,
    folder: Path,
    config: Mapping[str, Any],
    run_id: str,
    start: int,
    say: Callable[[str], None],
) -> list[Tracker]:
    """Open every chosen mirror of the run in `folder`; none by default.

    At Weights & Biases the run is named after its folder, and grouped with its neighbours there
    unless a group is given; run_id lets a resumed run go on there. start: first step to send.
    """
    opened: list[Tracker] = []
    if options.tensorboard:
        board = TensorBoardTracker(folder / "tensorboard")
        opened.append(Mirror("tensorboard", board, start, say))
    if options.wandb is not WandbMode.off:
        named = WandbOptions(
            mode="online" if options.wandb is WandbMode.online else "offline",
            project=options.wandb_project,
            entity=options.wandb_entity,
            group=options.wandb_group or folder.absolute().parent.name,
            name=folder.name,
            id=run_id,
        )
        opened.append(Mirror("wandb", WandbTracker(named, folder, config), start, say))
    return opened
