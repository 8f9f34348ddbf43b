"""The tuning half of a search: brackets of trials, halved at every rung (successive halving,
arXiv:1502.07943)."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import SEED
from rlhf_lab.sweeps.search.options import Direction, SearchOptions, bad_option
from rlhf_lab.sweeps.search.runs import (
    TRIAL,
    UNFINISHED,
    CountRounds,
    Outcome,
    RunJobs,
    SearchRun,
    delete_weights,
    metric_at,
    rung_overrides,
)
from rlhf_lab.sweeps.search.space import to_overrides
from rlhf_lab.sweeps.search.study import Study, Trial
from rlhf_lab.types.errors import StopRequested, UserError


@dataclass(frozen=True)
class Halving:
    """The rungs of a bracket. A trial is one run with its full schedule, paused at each rung."""

    rungs: int
    reduction: int

    @classmethod
    def of(cls, options: SearchOptions) -> Halving:
        return cls(options.rungs, options.reduction)

    def pauses(self, num_rounds: int) -> tuple[int, ...]:
        """Rounds done at each rung, at the last one all. Raises UserError if two are equal."""
        parts = [self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        pauses = tuple(-(-num_rounds // part) for part in parts)
        if len(set(pauses)) < len(pauses):
            raise bad_option(
                "rungs",
                self.rungs,
                f"a run of {num_rounds} rounds cannot be looked at after {pauses} of them; choose "
                "fewer rungs, or raise run.updates",
            )
        return pauses

    def sizes(self, bracket: int) -> tuple[int, ...]:
        """Number of settings at each rung of a bracket."""
        sizes = [bracket]
        while len(sizes) < self.rungs:
            sizes.append(self.num_survivors(sizes[-1]))
        return tuple(sizes)

    def num_survivors(self, count: int) -> int:
        """How many trials of this number go on."""
        return max(1, count // self.reduction)

    def cost(self, bracket: int) -> float:
        """The cost of a bracket in whole runs, for one seed."""
        shares = [1 / self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        new = [share - before for share, before in zip(shares, [0.0, *shares], strict=False)]
        return sum(map(operator.mul, self.sizes(bracket), new), 0.0)


def rank_trials(values: Mapping[int, float], count: int, direction: Direction) -> list[int]:
    """The trials with the best values, best first; ties go to the trial that was drawn first."""
    sign = -1.0 if direction is Direction.maximize else 1.0
    return sorted(values, key=lambda number: (sign * values[number], number))[:count]


@dataclass(frozen=True)
class Tuning:
    """Draws settings, runs them on the tuning seeds, and continues the better ones at every rung.

    fixed: overrides of all runs. folder: the search's. All decisions follow the order of the
    trials' numbers, never the order in which runs end, so the same search chooses the same.
    """

    options: SearchOptions
    study: Study
    fixed: Sequence[str]
    folder: Path
    run_jobs: RunJobs
    count_rounds: CountRounds
    console: Console

    def run(self) -> None:
        """Run all brackets; those that are done are not run again."""
        size = self.options.bracket_size
        for bracket in range(num_brackets(self.options)):
            begin = bracket * size
            drawn = self.study.trials()[begin : begin + size]
            while len(drawn) < size:
                drawn.append(self.study.draw())
            self._halve(bracket, [trial.number for trial in drawn])

    def _halve(self, bracket: int, numbers: Sequence[int]) -> None:
        """Run a bracket: prune, complete or fail each of its trials."""
        halving = Halving.of(self.options)
        alive = list(numbers)
        for rung in range(self.options.rungs):
            if not any(trial.is_open for trial in self._trials(numbers)):
                break
            values = self._measured(alive, rung)
            is_last = rung == self.options.rungs - 1
            kept = rank_trials(values, halving.num_survivors(len(alive)), self.options.direction)
            for trial in self._trials([number for number in alive if number in values]):
                if trial.is_open and is_last:
                    self.study.complete(trial.number, values[trial.number])
                elif trial.is_open and trial.number not in kept:
                    self.study.prune(trial.number)
            progress = f"bracket {bracket + 1} of {num_brackets(self.options)}, rung {rung + 1}"
            self.console.print(f"{progress}: {outline(alive, values, kept, is_last)}")
            alive = [number for number in alive if number in kept]
        for trial in () if self.options.keep else self._trials(numbers):
            if trial.state in ("pruned", "complete"):
                for folder in (self.folder / f"{TRIAL}-{trial.number:03d}").glob("seed-*"):
                    delete_weights(folder)

    def _measured(self, numbers: Sequence[int], rung: int) -> dict[int, float]:
        """The values of the trials at a rung; the study records those that failed."""
        trials = [t for t in self._trials(numbers) if t.is_open and rung not in t.values]
        runs_of = {trial.number: self._runs(trial, rung) for trial in trials}
        ended = self._run(runs_of)
        for trial in trials:
            runs, rounds = runs_of[trial.number]
            metrics = [metric_at(self.folder / run.name, self.options, rounds) for run in runs]
            known = [value for value in metrics if value is not None and math.isfinite(value)]
            if runs and len(known) == len(metrics):
                self.study.report(trial.number, rung, math.fsum(known) / len(known))
            else:
                self.study.fail(trial.number, failure_text(trial, runs, metrics, ended))
        values = {trial.number: trial.values for trial in self._trials(numbers)}
        return {number: values[number][rung] for number in numbers if rung in values[number]}

    def _runs(self, trial: Trial, rung: int) -> tuple[list[SearchRun], int]:
        """The runs of a trial, one for each tuning seed, and the rounds after which they are
        compared; no runs if none could start with its setting."""
        own = [*self.fixed, *to_overrides(trial.setting)]
        try:
            num_rounds = self.count_rounds([*own, *rung_overrides(self.options, 0, 0)])
            pause = Halving.of(self.options).pauses(num_rounds)[rung]
        except UserError as error:
            self.console.print(f"trial {trial.number} cannot be run: {error}")
            return [], 0
        own += rung_overrides(self.options, pause, num_rounds)
        # The trial that had this setting first: the same setting and seed give the same run.
        first = next(t.number for t in self.study.trials() if t.setting == trial.setting)
        return [
            SearchRun({TRIAL: f"{first:03d}", SEED: str(seed)}, (*own, f"seed={seed}"))
            for seed in self.options.tuning_seeds
        ], pause

    def _run(self, runs_of: Mapping[int, tuple[list[SearchRun], int]]) -> dict[str, Outcome]:
        """Start the runs that have done fewer rounds. Raises StopRequested if one was stopped."""
        wanted = {
            run.name: run
            for runs, rounds in runs_of.values()
            for run in runs
            if metric_at(self.folder / run.name, self.options, rounds) is None
        }
        if not wanted:
            return {}
        outcomes = self.run_jobs(list(wanted.values()))
        ended = dict(zip(wanted, outcomes, strict=True))
        rounds_of = {run.name: rounds for runs, rounds in runs_of.values() for run in runs}
        for name, outcome in ended.items():
            value = metric_at(self.folder / name, self.options, rounds_of[name])
            if value is None and outcome.state in UNFINISHED:
                self.console.print(f"{name} was stopped; the search goes on when started again")
                raise StopRequested
        return ended

    def _trials(self, numbers: Sequence[int]) -> list[Trial]:
        found = self.study.trials()
        return [found[number] for number in numbers]


def num_brackets(options: SearchOptions) -> int:
    """The number of brackets within trials and budget. Raises UserError if there is none."""
    brackets = options.trials // options.bracket_size
    if not options.max_runs:
        return brackets
    cost = bracket_cost(options)
    if options.max_runs < cost:
        raise bad_option(
            "max_runs",
            options.max_runs,
            f"one bracket of {options.bracket_size} settings amounts to {cost:g} whole runs; "
            "choose that or more, or a smaller bracket",
        )
    return min(brackets, int(options.max_runs / cost))


def bracket_cost(options: SearchOptions) -> float:
    """The cost of a bracket in whole runs."""
    halving = Halving.of(options)
    return halving.cost(options.bracket_size) * len(options.tuning_seeds)


def failure_text(
    trial: Trial,
    runs: Sequence[SearchRun],
    metrics: Sequence[float | None],
    ended: Mapping[str, Outcome],
) -> str:
    if not runs:
        return "no run could start with this setting"
    for run, value in zip(runs, metrics, strict=True):
        if value is None:
            problem = ended[run.name].problem if run.name in ended else ""
            return f"{run.name} failed: {problem or 'see its log'}"
    return f"a value of trial {trial.number} is no number: {list(metrics)}"


def outline(
    alive: Sequence[int], values: Mapping[int, float], kept: Sequence[int], is_last: bool
) -> str:
    """The decisions at a rung, in a line."""
    failed = len(alive) - len(values)
    top = f", best {values[kept[0]]:.4f} (trial {kept[0]})" if kept else ""
    goes = "came to the end" if is_last else "went on"
    number = len(values) if is_last else len(kept)
    return f"{number} of {len(alive)} trials {goes}{f', {failed} failed' if failed else ''}{top}"
