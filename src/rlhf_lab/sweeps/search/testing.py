"""The test half of a search: the chosen setting beside the default one, on seeds of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import SEED
from rlhf_lab.sweeps.search.jobs import TEST, UNFINISHED, Outcome, Run, RunJobs, is_number
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.space import written
from rlhf_lab.sweeps.search.student import mean_interval
from rlhf_lab.sweeps.search.study import Trial
from rlhf_lab.types.errors import StopRequested

DEFAULT = "default"
# What a comparison reports, of what the evaluation has.
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
    """A setting on the test seeds. rows: the last evaluation by seed; problems: by seed, of runs
    that have none."""

    name: str
    rows: Mapping[int, Mapping[str, Any]]
    problems: Mapping[int, str]


@dataclass(frozen=True)
class Paired:
    """A metric of both arms, by seed where both have it. low, high: 95% bounds of the mean
    difference, by Student's t over seeds."""

    metric: str
    default: Mapping[int, float]
    chosen: Mapping[int, float]

    @property
    def differences(self) -> list[float]:
        """Chosen minus default, seed by seed."""
        return [self.chosen[seed] - self.default[seed] for seed in self.default]

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean difference, and its bounds."""
        return mean_interval(self.differences)


def tested(
    chosen: Trial,
    fixed: Sequence[str],
    options: SearchOptions,
    folder: Path,
    run_jobs: RunJobs,
    console: Console,
) -> tuple[Arm, Arm]:
    """The default and the chosen setting, run on the test seeds where they were not yet. Raises
    StopRequested if a run was stopped."""
    settings: dict[str, list[str]] = {
        DEFAULT: [],
        f"trial-{chosen.number:03d}": written(chosen.setting),
    }
    runs = {
        (arm, seed): Run(
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
    runs: Mapping[tuple[str, int], Run],
    outcomes: Mapping[tuple[str, int], Outcome],
) -> Arm:
    """What the runs of a setting came to."""
    rows: dict[int, Mapping[str, Any]] = {}
    problems: dict[int, str] = {}
    for seed in options.test_seeds:
        outcome = outcomes[name, seed]
        found = read_rows(folder / runs[name, seed].name / EVALS)
        if outcome.state == "finished" and found:
            rows[seed] = found[-1]
        else:
            problems[seed] = outcome.problem or "it has no evaluation"
    return Arm(name, rows, problems)


def paired(default: Arm, chosen: Arm, metric: str) -> list[Paired]:
    """The metrics that both arms have, on the seeds that both finished; `metric` first."""
    seeds = [seed for seed in default.rows if seed in chosen.rows]
    found = []
    for name in dict.fromkeys((metric, *METRICS)):
        rows = [(seed, default.rows[seed], chosen.rows[seed]) for seed in seeds]
        if rows and all(is_number(row.get(name)) for _, *both in rows for row in both):
            found.append(
                Paired(
                    name,
                    {seed: float(one[name]) for seed, one, _ in rows},
                    {seed: float(other[name]) for seed, _, other in rows},
                )
            )
    return found
