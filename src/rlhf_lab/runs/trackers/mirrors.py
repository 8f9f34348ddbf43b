"""The mirrors that a run's options ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlhf_lab.runs.trackers.identity import Tracked, group, run_name, tags, told
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.tensorboard import TensorBoardTracker
from rlhf_lab.runs.trackers.wandb import WandbOptions, WandbTracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.protocols import Tracker

Say = Callable[[str], None]


class Mirror:
    """A tracker that may be lost without the run: its first error is told, and it is left alone.

    Steps below `start` are there already, from before the run was resumed.
    """

    def __init__(self, name: str, tracker: Tracker, start: int, say: Say) -> None:
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


def mirrors(options: TrackerOptions, run: Tracked, start: int, say: Say) -> list[Tracker]:
    """Open every chosen mirror of the run; none by default. start: first step to send."""
    opened: list[Tracker] = []
    if options.tensorboard:
        board = TensorBoardTracker(run.folder / "tensorboard")
        opened.append(Mirror("tensorboard", board, start, say))
    if options.wandb is not WandbMode.off:
        opened.append(Mirror("wandb", wandb_run(options, run), start, say))
    return opened


def wandb_run(options: TrackerOptions, run: Tracked, id_: str = "") -> WandbTracker:
    """The run at Weights & Biases; its id lets a resumed one go on there.

    id_: of another run about the same folder.
    """
    named = WandbOptions(
        mode="online" if options.wandb is WandbMode.online else "offline",
        project=options.wandb_project,
        entity=options.wandb_entity,
        group=group(run, options),
        name=run_name(run, options),
        tags=tags(run, options),
        id=id_ or run.run_id,
        job_type=run.job_type,
    )
    return WandbTracker(named, run.folder, told(run, options))


def as_evaluation(run: Tracked) -> Tracked:
    """The same run, judged again after its end."""
    return replace(run, job_type="evaluate")
