"""The runs of a search: what they are started with, and what their folders tell."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.folder import EVALS, METRICS, VALIDATION
from rlhf_lab.runs.jsonl import Rows, read_rows
from rlhf_lab.sweeps.grid import name_of
from rlhf_lab.sweeps.search.options import SearchOptions, Source, refused

# The parts of a search, by which its runs are named.
TRIAL, TEST = "trial", "test"
# Runs that were asked to stop, or that somebody else has: they go on when the search does.
UNFINISHED = ("stopped", "running", "elsewhere")


@dataclass(frozen=True)
class Run:
    """point: what it is among the search's runs, as a sweep names its jobs. overrides: all of its
    own."""

    point: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its folder below the search's."""
        return name_of(self.point)


@dataclass(frozen=True)
class Outcome:
    """The state that a run is in after it was started, and why, if it failed."""

    state: str
    problem: str = ""


# Starts all of these runs, waits for them, and tells of each how it ended. None of them raises.
RunJobs = Callable[[Sequence[Run]], Sequence[Outcome]]
# Rounds of a run with these overrides; raises UserError if no run could start with them.
Rounds = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Spent:
    """What runs took: rounds, device-seconds of their ledgers, seconds of reading versions."""

    runs: int = 0
    rounds: int = 0
    device_seconds: float = 0.0
    reading_seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.runs + other.runs,
            self.rounds + other.rounds,
            self.device_seconds + other.device_seconds,
            self.reading_seconds + other.reading_seconds,
        )


def spent(folder: Path) -> Spent:
    """What one run took so far; nothing if it never began."""
    rounds = read_rows(folder / METRICS)
    read = [*read_rows(folder / VALIDATION), *read_rows(folder / EVALS)]
    last = rounds[-1] if rounds else {}
    return Spent(
        runs=int(folder.is_dir()),
        rounds=len(rounds),
        device_seconds=float(last.get("seconds/device", 0.0)),
        reading_seconds=sum(float(row.get("timing/seconds", 0.0)) for row in read),
    )


def total(folders: Sequence[Path]) -> Spent:
    """What several runs took, each counted once."""
    return sum(map(spent, dict.fromkeys(folders)), Spent())


def rung_overrides(options: SearchOptions, pause: int, num_rounds: int) -> list[str]:
    """What makes a run stop at a rung, and write down what it is worth there."""
    readers = {False: "proxy", True: "judge"}[options.asks_judge]
    validate = readers if options.measured_on is Source.validation else "none"
    return [
        f"checkpoint.pause_round={pause if pause < num_rounds else 0}",
        "eval.snapshots=0",
        f"eval.validate={validate}",
        *options.tuning_overrides,
    ]


def value_at(folder: Path, options: SearchOptions, rounds: int) -> float | None:
    """What a run was worth after so many rounds, None if it did not come so far. Raises UserError
    for a metric that it does not have."""
    if options.measured_on is Source.validation:
        readers = "judge" if options.asks_judge else "proxy"
        rows = [
            row
            for row in read_rows(folder / VALIDATION)
            if row["version"] == rounds and row.get("validate") == readers
        ]
    else:
        rows = trained(read_rows(folder / METRICS), rounds)[-options.last_rounds :]
    if not rows:
        return None
    for row in rows:
        if not is_number(row.get(options.metric)):
            raise refused("metric", options.metric, f"{folder} has {', '.join(numbers(row))}")
    return math.fsum(row[options.metric] for row in rows) / len(rows)


def trained(rows: Rows, rounds: int) -> Rows | list[dict[str, object]]:
    """The first rounds of a run, nothing if it has not done so many."""
    return rows[:rounds] if len(rows) >= rounds else []


def numbers(row: dict[str, object]) -> list[str]:
    """Names of a row's numbers, those of a clock left out."""
    return [
        key
        for key, value in row.items()
        if is_number(value) and not key.startswith(("seconds/", "timing/"))
    ]


def is_number(value: object) -> bool:
    """Whether a value can be averaged: neither a truth nor too large for that."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return is_whole or isinstance(value, float)


def discard(folder: Path) -> None:
    """Remove what a tuning run that nobody goes on with has on disk, but not what it told."""
    for name in ("checkpoints", "weights", "policy"):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)
