"""The tuning half of a search: brackets of trials, halved at every rung."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import SEED
from rlhf_lab.sweeps.search.halving import Halving, best
from rlhf_lab.sweeps.search.jobs import (
    TRIAL,
    UNFINISHED,
    Outcome,
    Rounds,
    Run,
    RunJobs,
    discard,
    rung_overrides,
    value_at,
)
from rlhf_lab.sweeps.search.options import SearchOptions, refused
from rlhf_lab.sweeps.search.space import Value, written
from rlhf_lab.sweeps.search.study import Study, Trial
from rlhf_lab.types.errors import StopRequested, UserError


@dataclass(frozen=True)
class Tuning:
    """Draws settings, runs them on the tuning seeds, and keeps the better ones at every rung.

    fixed: overrides of all runs. folder: the search's. The order of everything that decides is that
    of the trials' numbers, never that in which runs end, so the same search chooses the same.
    """

    options: SearchOptions
    study: Study
    fixed: Sequence[str]
    folder: Path
    run_jobs: RunJobs
    rounds: Rounds
    console: Console

    def run(self) -> None:
        """All brackets; those that are done already cost nothing."""
        size = self.options.bracket_size
        for bracket in range(num_brackets(self.options)):
            begin = bracket * size
            drawn = self.study.trials()[begin : begin + size]
            while len(drawn) < size:
                drawn.append(self.study.draw())
            self._halve(bracket, [trial.number for trial in drawn])

    def _halve(self, bracket: int, numbers: Sequence[int]) -> None:
        """Decide on all trials of a bracket."""
        halving = Halving.of(self.options)
        alive = list(numbers)
        for rung in range(self.options.rungs):
            if not any(trial.is_open for trial in self._trials(numbers)):
                break
            values = self._measured(alive, rung)
            is_last = rung == self.options.rungs - 1
            kept = best(values, halving.kept(len(alive)), self.options.direction)
            for number in alive:
                self._decide(number, values.get(number), is_last, number in kept)
            told = f"bracket {bracket + 1} of {num_brackets(self.options)}, rung {rung + 1}"
            self.console.print(f"{told}: {outline(alive, values, kept, is_last)}")
            alive = [number for number in alive if number in kept]
        for number in numbers:
            self._discard(number)

    def _decide(self, number: int, value: float | None, is_last: bool, is_kept: bool) -> None:
        if value is None or not self._trials([number])[0].is_open:
            return
        if is_last:
            self.study.complete(number, value)
        elif not is_kept:
            self.study.prune(number)

    def _measured(self, numbers: Sequence[int], rung: int) -> dict[int, float]:
        """What the trials are worth at a rung; those that failed are told to the study and left
        out."""
        trials = [t for t in self._trials(numbers) if t.is_open and rung not in t.values]
        places = {trial.number: self._runs(trial, rung) for trial in trials}
        ended = self._run(places)
        for trial in trials:
            runs, rounds = places[trial.number]
            found = [value_at(self.folder / run.name, self.options, rounds) for run in runs]
            known = [value for value in found if value is not None and math.isfinite(value)]
            if runs and len(known) == len(found):
                self.study.report(trial.number, rung, math.fsum(known) / len(known))
            else:
                self.study.fail(trial.number, why(trial, runs, found, ended))
        values = {trial.number: trial.values for trial in self._trials(numbers)}
        return {number: values[number][rung] for number in numbers if rung in values[number]}

    def _runs(self, trial: Trial, rung: int) -> tuple[list[Run], int]:
        """The runs of a trial, one for each tuning seed, and the rounds after which they are looked
        at; none if no run could start with its setting."""
        own = [*self.fixed, *written(trial.setting)]
        try:
            num_rounds = self.rounds([*own, *rung_overrides(self.options, 0, 0)])
            pause = Halving.of(self.options).pauses(num_rounds)[rung]
        except UserError as error:
            self.console.print(f"trial {trial.number} cannot be run: {error}")
            return [], 0
        own += rung_overrides(self.options, pause, num_rounds)
        first = f"{self._first(trial.setting):03d}"
        return [
            Run({TRIAL: first, SEED: str(seed)}, (*own, f"seed={seed}"))
            for seed in self.options.tuning_seeds
        ], pause

    def _first(self, setting: Mapping[str, Value]) -> int:
        """The trial that had this setting first: the same setting and seed give the same run."""
        return next(t.number for t in self.study.trials() if t.setting == setting)

    def _run(self, places: Mapping[int, tuple[list[Run], int]]) -> dict[str, Outcome]:
        """Start the runs that have not come so far. Raises StopRequested if one was stopped."""
        wanted = {
            run.name: run
            for runs, rounds in places.values()
            for run in runs
            if value_at(self.folder / run.name, self.options, rounds) is None
        }
        if not wanted:
            return {}
        outcomes = self.run_jobs(list(wanted.values()))
        ended = dict(zip(wanted, outcomes, strict=True))
        rounds_of = {run.name: rounds for runs, rounds in places.values() for run in runs}
        for name, outcome in ended.items():
            value = value_at(self.folder / name, self.options, rounds_of[name])
            if value is None and outcome.state in UNFINISHED:
                self.console.print(f"{name} was stopped; the search goes on when started again")
                raise StopRequested
        return ended

    def _trials(self, numbers: Sequence[int]) -> list[Trial]:
        found = self.study.trials()
        return [found[number] for number in numbers]

    def _discard(self, number: int) -> None:
        """Free the disk of a trial that is decided; one that failed is left to be looked at."""
        (trial,) = self._trials([number])
        if self.options.keep or trial.state not in ("pruned", "complete"):
            return
        for folder in (self.folder / f"{TRIAL}-{number:03d}").glob("seed-*"):
            discard(folder)


def num_brackets(options: SearchOptions) -> int:
    """How many brackets trials and budget allow. Raises UserError if the budget allows none."""
    brackets = options.trials // options.bracket_size
    if not options.max_runs:
        return brackets
    cost = bracket_cost(options)
    if options.max_runs < cost:
        raise refused(
            "max_runs",
            options.max_runs,
            f"one bracket of {options.bracket_size} settings amounts to {cost:g} whole runs; "
            "choose that or more, or a smaller bracket",
        )
    return min(brackets, int(options.max_runs / cost))


def bracket_cost(options: SearchOptions) -> float:
    """Whole runs that a bracket amounts to."""
    halving = Halving.of(options)
    return halving.cost(options.bracket_size) * len(options.tuning_seeds)


def why(
    trial: Trial, runs: Sequence[Run], found: Sequence[float | None], ended: Mapping[str, Outcome]
) -> str:
    """Why a trial has no value."""
    if not runs:
        return "no run could start with this setting"
    for run, value in zip(runs, found, strict=True):
        if value is None:
            said = ended[run.name].problem if run.name in ended else ""
            return f"{run.name} failed: {said or 'see its log'}"
    return f"a value of trial {trial.number} is no number: {list(found)}"


def outline(
    alive: Sequence[int], values: Mapping[int, float], kept: Sequence[int], is_last: bool
) -> str:
    """What a rung decided, in a line."""
    failed = len(alive) - len(values)
    top = f", best {values[kept[0]]:.4f} (trial {kept[0]})" if kept else ""
    goes = "came to the end" if is_last else "went on"
    number = len(values) if is_last else len(kept)
    return f"{number} of {len(alive)} trials {goes}{f', {failed} failed' if failed else ''}{top}"
