"""The runs of a search: their overrides, their metric and their cost."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.folder import EVALS, METRICS, VALIDATION
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.verification import require_recorded
from rlhf_lab.sweeps.grid import name_of
from rlhf_lab.sweeps.search.options import SearchOptions, Source, bad_option

# The parts of a search; runs are named after them.
TRIAL, TEST = "trial", "test"
# States of runs that were stopped, or that another process runs: they resume with the search.
UNFINISHED = ("stopped", "running", "elsewhere")
# The number of rounds of a run with these overrides. Raises UserError if it could not start.
CountRounds = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class SearchRun:
    """point: the keys that name it, as those of a sweep's job. overrides: all of its config."""

    point: Mapping[str, str]
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its folder, relative to the search's."""
        return name_of(self.point)


@dataclass(frozen=True)
class Outcome:
    """The state of a run after its launch, and the error if it failed."""

    state: str
    problem: str = ""


# Runs all of these and returns how each ended; it does not raise for a failed run.
RunJobs = Callable[[Sequence[SearchRun]], Sequence[Outcome]]


@dataclass(frozen=True)
class Usage:
    """The cost of runs: rounds, device-seconds of their ledgers, seconds of their evaluations."""

    runs: int = 0
    rounds: int = 0
    device_seconds: float = 0.0
    reading_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.runs + other.runs,
            self.rounds + other.rounds,
            self.device_seconds + other.device_seconds,
            self.reading_seconds + other.reading_seconds,
        )


def usage_of(folder: Path) -> Usage:
    """The cost of one run so far; zero if it never started."""
    rounds = read_rows(folder / METRICS)
    evaluations = [*read_rows(folder / VALIDATION), *read_rows(folder / EVALS)]
    last = rounds[-1] if rounds else {}
    return Usage(
        runs=int(folder.is_dir()),
        rounds=len(rounds),
        device_seconds=float(last.get("seconds/device", 0.0)),
        reading_seconds=sum(float(row.get("timing/seconds", 0.0)) for row in evaluations),
    )


def total_usage(folders: Sequence[Path]) -> Usage:
    """The cost of several runs, each counted once."""
    return sum(map(usage_of, dict.fromkeys(folders)), Usage())


def rung_overrides(options: SearchOptions, pause: int, num_rounds: int) -> list[str]:
    """The overrides that pause a run at a rung and evaluate it there."""
    readers = {False: "proxy", True: "judge"}[options.needs_judge]
    validate = readers if options.measured_on is Source.validation else "none"
    return [
        f"checkpoint.pause_round={pause if pause < num_rounds else 0}",
        "eval.snapshots=0",
        "eval.every=0",
        f"eval.validate={validate}",
        *options.tuning_overrides,
    ]


def metric_at(folder: Path, options: SearchOptions, rounds: int) -> float | None:
    """The metric of a run after this number of rounds; None if it did not come so far. Raises
    UserError for a metric that it does not have, and for rows that it did not write."""
    if options.measured_on is Source.validation:
        path = folder / VALIDATION
        readers = "judge" if options.needs_judge else "proxy"
        rows = [
            row
            for row in read_rows(path)
            if row["version"] == rounds and row.get("validate") == readers
        ]
    else:
        path = folder / METRICS
        done = read_rows(path)
        rows = done[:rounds][-options.last_rounds :] if len(done) >= rounds else []
    if not rows:
        return None
    require_recorded(folder, path)
    for row in rows:
        if not is_number(row.get(options.metric)):
            raise bad_option(
                "metric", options.metric, f"{folder} has {', '.join(numeric_keys(row))}"
            )
    return math.fsum(row[options.metric] for row in rows) / len(rows)


def numeric_keys(row: dict[str, object]) -> list[str]:
    return [
        key
        for key, value in row.items()
        if is_number(value) and not key.startswith(("seconds/", "timing/"))
    ]


def is_number(value: object) -> bool:
    """Whether a value can be averaged: no bool, and exact as a float."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**53
    return is_whole or isinstance(value, float)


def delete_weights(folder: Path) -> None:
    """Delete checkpoints and weights of a tuning run that ended; its metrics stay."""
    for name in ("checkpoints", "weights", "policy"):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)
