"""The test of a search: the chosen setting against the default one, on the test seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import SEED
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.runs import TEST, UNFINISHED, Outcome, RunJobs, SearchRun, is_number
from rlhf_lab.sweeps.search.space import to_overrides
from rlhf_lab.sweeps.search.study import Trial
from rlhf_lab.types.errors import StopRequested

DEFAULT = "default"
# Metrics of the evaluation that the comparison reports.
METRICS = (
    "gold/win_rate",
    "gold/mean",
    "accuracy/mean",
    "proxy/mean",
    "kl/sft_k1",
    "sample/length",
)


@dataclass(frozen=True)
class Arm:
    """A setting on the test seeds. rows: the last evaluation by seed; problems: by seed, why a run
    has none."""

    name: str
    rows: Mapping[int, Mapping[str, Any]]
    problems: Mapping[int, str]


@dataclass(frozen=True)
class PairedMetric:
    """A metric of both arms, by seed."""

    metric: str
    default: Mapping[int, float]
    chosen: Mapping[int, float]

    @property
    def differences(self) -> list[float]:
        """Chosen minus default, seed by seed."""
        return [self.chosen[seed] - self.default[seed] for seed in self.default]

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean difference, and its 95% bounds by Student's t over seeds."""
        return mean_interval(self.differences)


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the bounds of its 95% confidence interval by Student's t, infinite for a single
    number."""
    from scipy.special import stdtrit

    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, -math.inf, math.inf
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = float(stdtrit(count - 1, 0.975)) * math.sqrt(variance / count)
    return mean, mean - half, mean + half


def run_test(
    chosen: Trial,
    fixed: Sequence[str],
    options: SearchOptions,
    folder: Path,
    run_jobs: RunJobs,
    console: Console,
) -> tuple[Arm, Arm]:
    """Run the default and the chosen setting on the test seeds. Raises StopRequested if a run was
    stopped."""
    settings: dict[str, list[str]] = {
        DEFAULT: [],
        f"trial-{chosen.number:03d}": to_overrides(chosen.setting),
    }
    runs = {
        (arm, seed): SearchRun(
            {TEST: arm, SEED: str(seed)},
            (*fixed, *setting, *options.test_overrides, f"seed={seed}"),
        )
        for seed in options.test_seeds
        for arm, setting in settings.items()
    }
    outcomes = dict(zip(runs, run_jobs(list(runs.values())), strict=True)) if runs else {}
    for key, outcome in outcomes.items():
        if outcome.state in UNFINISHED:
            console.print(f"{runs[key].name} was stopped; the search goes on when started again")
            raise StopRequested
    first, second = (arm_of(arm, options, folder, runs, outcomes) for arm in settings)
    return first, second


def arm_of(
    name: str,
    options: SearchOptions,
    folder: Path,
    runs: Mapping[tuple[str, int], SearchRun],
    outcomes: Mapping[tuple[str, int], Outcome],
) -> Arm:
    rows: dict[int, Mapping[str, Any]] = {}
    problems: dict[int, str] = {}
    for seed in options.test_seeds:
        outcome = outcomes[name, seed]
        evaluations = read_rows(folder / runs[name, seed].name / EVALS)
        if outcome.state == "finished" and evaluations:
            rows[seed] = evaluations[-1]
        else:
            problems[seed] = outcome.problem or "it has no evaluation"
    return Arm(name, rows, problems)


def pair_metrics(default: Arm, chosen: Arm, metric: str) -> list[PairedMetric]:
    """The metrics that both arms have, on the seeds that both finished; `metric` first."""
    seeds = [seed for seed in default.rows if seed in chosen.rows]
    found = []
    for name in dict.fromkeys((metric, *METRICS)):
        rows = [(seed, default.rows[seed], chosen.rows[seed]) for seed in seeds]
        if rows and all(is_number(row.get(name)) for _, *both in rows for row in both):
            found.append(
                PairedMetric(
                    name,
                    {seed: float(one[name]) for seed, one, _ in rows},
                    {seed: float(other[name]) for seed, _, other in rows},
                )
            )
    return found
