"""Predict the seconds and bytes of a sweep from finished runs like its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.settings import Settings
from rlhf_lab.experiment.planning.timing import Measurement, measured
from rlhf_lab.runs.manifest import last_start
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.sweeps.job import Job
from rlhf_lab.types.errors import UserError

# The settings by which runs are like a job: NEEDED of them at least, from the front.
ALIKE = ("task", "model", "algo", "mode")
NEEDED = 2


@dataclass(frozen=True)
class Cost:
    """The predicted cost of a job. source: the run that it is predicted from."""

    seconds: float
    bytes: int
    source: Path


class PastRuns:
    """The finished runs below a folder, from which costs are predicted."""

    def __init__(self, root: Path) -> None:
        found = list_runs(root) if root.is_dir() else []
        self._runs = [run for run in found if run.state == "finished"]
        self._measured: dict[Path, Measurement | None] = {}
        self._costs: dict[str, Cost | None] = {}

    def cost(self, job: Job) -> Cost | None:
        """The cost of a job; None without a measured run of its task and model. Jobs with equal
        settings cost the same."""
        key = repr((dict(job.facts), dict(job.settings)))
        if key not in self._costs:
            self._costs[key] = self._cost(job)
        return self._costs[key]

    def _cost(self, job: Job) -> Cost | None:
        for run in sorted(self._runs, key=lambda run: similarity(run, job), reverse=True):
            if similarity(run, job) < NEEDED:
                return None
            measurement = self._measurement(run.folder)
            if measurement is not None:
                return cost_from(run, measurement, job)
        return None

    def _measurement(self, folder: Path) -> Measurement | None:
        """None if other settings cannot be predicted from the run."""
        if folder not in self._measured:
            try:
                self._measured[folder] = measured(folder)
            except UserError:
                self._measured[folder] = None
        return self._measured[folder]


def similarity(run: RunSummary, job: Job) -> int:
    """How many settings of ALIKE the run shares with the job, counted from the front."""
    shared = [run.manifest.get(key) == job.facts[key] for key in ALIKE]
    return shared.index(False) if False in shared else len(shared)


def cost_from(run: RunSummary, measurement: Measurement, job: Job) -> Cost:
    """Predict the job's rounds from those of the run, and add the run's time outside of rounds."""
    settings = Settings(**{field.name: job.settings[field.name] for field in fields(Settings)})
    outside = max(0.0, seconds_of(run.manifest) - measurement.wall)
    wall = planner.predict(measurement, settings).wall
    return Cost(wall + outside, size_of(run.folder), run.folder)


def seconds_of(manifest: Mapping[str, Any]) -> float:
    """From a run's last start to its end; 0 if one of them is unknown."""
    if not {"started", "ended"} <= manifest.keys():
        return 0.0
    times = (last_start(manifest), manifest["ended"])
    begun, ended = (datetime.fromisoformat(text) for text in times)
    return (ended - begun).total_seconds()


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class SweepCost:
    """The cost of several jobs: seconds one after the other, device-seconds, bytes on disk.
    unknown: jobs without a prediction. sources: runs that were measured."""

    seconds: float
    device_seconds: float
    bytes: int
    unknown: int
    sources: int


def predict_cost(jobs: Sequence[Job], rates: PastRuns) -> SweepCost:
    """The sums over the jobs with a prediction."""
    costs = [(job, rates.cost(job)) for job in jobs]
    known = [(job, cost) for job, cost in costs if cost is not None]
    return SweepCost(
        seconds=sum(cost.seconds for _, cost in known),
        device_seconds=sum(cost.seconds * job.devices for job, cost in known),
        bytes=sum(cost.bytes for _, cost in known),
        unknown=len(costs) - len(known),
        sources=len({cost.source for _, cost in known}),
    )
