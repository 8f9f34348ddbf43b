"""Opens the trackers that mirror a run's JSONL record, as its options choose them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from rlhf_lab.runs.rollouts import RolloutSample
from rlhf_lab.runs.trackers.identity import TrackedRun, group, run_name, tags, tracker_config
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.runs.trackers.tensorboard import EVENTS, TensorBoardTracker
from rlhf_lab.runs.trackers.wandb import WandbOptions, WandbTracker
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.protocols import Tracker

Warn = Callable[[str], None]
TABLES = 50


@runtime_checkable
class ShowsSamples(Protocol):
    """A tracker that shows samples of a round as texts."""

    def log_samples(self, samples: Sequence[RolloutSample]) -> None: ...


@runtime_checkable
class OwnTracker(Protocol):
    """Options of a plugin's tracker, which opens it."""

    name: str

    def open(self, run: TrackedRun) -> Tracker:
        """The tracker of a run. Raises UserError where it cannot be opened."""
        ...


class Mirror:
    """A tracker that the run can do without: it is dropped at its first error, with a warning.

    start: steps below it were sent before the run was resumed.
    """

    def __init__(self, name: str, tracker: Tracker, start: int, warn: Warn) -> None:
        self._name = name
        self._tracker: Tracker | None = tracker
        self._start = start
        self._warn = warn

    def log(self, metrics: Metrics, step: int) -> None:
        if self._tracker is not None and step >= self._start:
            self._try(self._tracker.log, metrics, step)

    def log_samples(self, samples: Sequence[RolloutSample]) -> None:
        """Send the samples of a round to a tracker that shows them."""
        if isinstance(self._tracker, ShowsSamples) and samples[0].round >= self._start:
            self._try(self._tracker.log_samples, samples)

    def close(self) -> None:
        if self._tracker is not None:
            self._try(self._tracker.close)

    def _try(self, send: Callable[..., None], *arguments: Any) -> None:
        try:
            send(*arguments)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = None
        self._warn(
            f"tracker {self._name} failed and gets no more rows; metrics.jsonl has every round "
            f"({type(error).__name__}: {error})"
        )


def open_mirrors(options: TrackerOptions, run: TrackedRun, start: int, warn: Warn) -> list[Tracker]:
    """Open every chosen mirror of the run; none by default. start: first step to send. warn: also
    prints where the run is shown."""
    opened: list[Tracker] = []
    if options.tensorboard:
        board = TensorBoardTracker(run.folder / EVENTS)
        board.describe(run.config)
        opened.append(Mirror("tensorboard", board, start, warn))
    if options.wandb is not WandbMode.off:
        tracker = open_wandb(options, run)
        if tracker.url:
            warn(f"Weights & Biases: {tracker.url}")
        opened.append(Mirror("wandb", tracker, start, warn))
    if isinstance(options, OwnTracker):
        opened.append(Mirror(options.name, options.open(run), start, warn))
    return opened


def open_wandb(options: TrackerOptions, run: TrackedRun, id_: str = "") -> WandbTracker:
    """Open the run at Weights & Biases; its id lets a resumed run go on there.

    id_: of another run at Weights & Biases about the same folder.
    """
    wandb_options = WandbOptions(
        mode="online" if options.wandb is WandbMode.online else "offline",
        project=options.wandb_project,
        entity=options.wandb_entity,
        group=group(run, options),
        name=run_name(run, options),
        tags=tags(run, options),
        id=id_ or run.run_id,
        job_type=run.job_type,
        table_rounds=table_rounds(run),
    )
    return WandbTracker(wandb_options, run.folder, tracker_config(run, options))


def table_rounds(run: TrackedRun) -> int:
    """Rounds whose samples are sent together, so that a run sends at most TABLES tables."""
    options = run.config.get("run", {})
    per_round = options.get("updates_per_round", 1) * options.get("passes", 1)
    rounds = int(options.get("updates", 1) // per_round)
    return max(1, math.ceil(rounds / TABLES))
