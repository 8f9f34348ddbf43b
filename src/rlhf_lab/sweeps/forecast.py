"""What a sweep will take, from what runs like its jobs took on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.planning import planner
from rlhf_lab.experiment.planning.timing import Measurement, Settings, measured
from rlhf_lab.runs.manifest import last_start
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.types.errors import UserError

# What two runs must share to be of one cost, the first two always; then as many as can be had.
ALIKE = ("task", "model", "algo", "mode")
NEEDED = 2


@dataclass(frozen=True)
class Wanted:
    """A job, for the forecast. facts: those of ALIKE. settings: as a manifest has them."""

    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    devices: int


@dataclass(frozen=True)
class Cost:
    """seconds: from the job's start to its end. source: the run that it was predicted from."""

    seconds: float
    bytes: int
    source: Path


class Rates:
    """The finished runs below a folder, as a source of predictions."""

    def __init__(self, root: Path) -> None:
        found = list_runs(root) if root.is_dir() else []
        self._runs = [run for run in found if run.state == "finished"]
        self._measured: dict[Path, Measurement | None] = {}
        self._costs: dict[str, Cost | None] = {}

    def cost(self, job: Wanted) -> Cost | None:
        """The cost of a job, None if no run of its task and model was measured. Jobs of equal
        settings cost the same."""
        key = repr((dict(job.facts), dict(job.settings)))
        if key not in self._costs:
            self._costs[key] = self._cost(job)
        return self._costs[key]

    def _cost(self, job: Wanted) -> Cost | None:
        for run in sorted(self._runs, key=lambda run: likeness(run, job), reverse=True):
            if likeness(run, job) < NEEDED:
                return None
            measurement = self._measurement(run.folder)
            if measurement is not None:
                return cost_from(run, measurement, job)
        return None

    def _measurement(self, folder: Path) -> Measurement | None:
        """None where the run's seconds do not tell those of other settings."""
        if folder not in self._measured:
            try:
                self._measured[folder] = measured(folder)
            except UserError:
                self._measured[folder] = None
        return self._measured[folder]


def likeness(run: RunSummary, job: Wanted) -> int:
    """How many of ALIKE the run shares with the job, counted from the front."""
    shared = [run.manifest.get(key) == job.facts[key] for key in ALIKE]
    return shared.index(False) if False in shared else len(shared)


def cost_from(run: RunSummary, measurement: Measurement, job: Wanted) -> Cost:
    """The job's rounds at the run's rates, and what the run took besides its rounds."""
    settings = Settings(**{field.name: job.settings[field.name] for field in fields(Settings)})
    besides = max(0.0, seconds_of(run.manifest) - measurement.wall)
    wall = planner.predict(measurement, settings).wall
    return Cost(wall + besides, size_of(run.folder), run.folder)


def seconds_of(manifest: Mapping[str, Any]) -> float:
    """From a run's last start to its end, 0 where it does not have both."""
    if not {"started", "ended"} <= manifest.keys():
        return 0.0
    times = (last_start(manifest), manifest["ended"])
    begun, ended = (datetime.fromisoformat(text) for text in times)
    return (ended - begun).total_seconds()


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Forecast:
    """Of the jobs that are to be run: seconds of all of them one after the other, the same times
    the devices that each holds, and bytes; unknown: jobs that nothing is known about; sources: runs
    measured."""

    seconds: float
    device_seconds: float
    bytes: int
    unknown: int
    sources: int


def forecast(jobs: Sequence[Wanted], rates: Rates) -> Forecast:
    """The sums over the jobs whose cost can be told."""
    costs = [(job, rates.cost(job)) for job in jobs]
    known = [(job, cost) for job, cost in costs if cost is not None]
    return Forecast(
        seconds=sum(cost.seconds for _, cost in known),
        device_seconds=sum(cost.seconds * job.devices for job, cost in known),
        bytes=sum(cost.bytes for _, cost in known),
        unknown=len(costs) - len(known),
        sources=len({cost.source for _, cost in known}),
    )
