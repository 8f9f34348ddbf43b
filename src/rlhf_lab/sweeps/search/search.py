"""A search from its first word to its last: tune, choose, test, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search import report, study
from rlhf_lab.sweeps.search.halving import Halving
from rlhf_lab.sweeps.search.jobs import Rounds, RunJobs, rung_overrides
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.space import Dimension
from rlhf_lab.sweeps.search.testing import tested
from rlhf_lab.sweeps.search.tuning import Tuning, bracket_cost, num_brackets
from rlhf_lab.types.errors import UserError

DATABASE = "study.db"
LOCK = ".search.lock"
# What may differ when a search is gone on with: how long it goes on, and what comes after it.
FREE = ("trials", "max_runs", "test_seeds", "test_overrides", "keep")


@dataclass(frozen=True)
class Search:
    """What is searched, where, and with what. fixed: overrides of all runs. base: hash of the
    config that they share; code: version of the code, which takes_other_code lets differ."""

    folder: Path
    fixed: Sequence[str]
    space: Sequence[Dimension]
    options: SearchOptions
    base: str
    code: str
    takes_other_code: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """What must be the same when the search is gone on with."""
        names = [key for key in vars(self.options) if key not in FREE]
        options = {key: getattr(self.options, key) for key in names}
        space = {part.key: part.told for part in self.space}
        code = {} if self.takes_other_code else {study.CODE: self.code}
        return {**options, "space": space, "base": self.base, **code}

    def plan(self, rounds: Rounds) -> list[str]:
        """What will be run, in words. Raises UserError for what could not be."""
        options, halving = self.options, Halving.of(self.options)
        num_rounds = rounds([*self.fixed, *rung_overrides(options, 0, 0)])
        rounds([*self.fixed, *options.test_overrides])
        pauses, sizes = halving.pauses(num_rounds), halving.sizes(options.bracket_size)
        rounds([*self.fixed, *rung_overrides(options, pauses[0], num_rounds)])
        brackets, seeds = num_brackets(options), len(options.tuning_seeds)
        steps = ", ".join(f"{s} settings to round {p}" for s, p in zip(sizes, pauses, strict=True))
        return [
            *(f"  {part.key}: {part.told}" for part in self.space),
            f"{brackets} brackets on {seeds} tuning seeds: {steps} of {num_rounds} (of the default "
            f"setting), {options.metric} on {options.measured_on.value}, "
            f"{options.direction.value}d",
            f"tuning amounts to {brackets * bracket_cost(options):g} whole runs at most, then "
            f"{2 * len(options.test_seeds)} runs on the test seeds",
        ]

    def run(self, run_jobs: RunJobs, rounds: Rounds, console: Console) -> report.Found:
        """Tune, choose, test, and report. Raises StopRequested if a run was stopped: the same
        search goes on there. Raises UserError if the folder is another's."""
        with try_lock(self.folder / LOCK) as is_ours:
            if not is_ours:
                raise UserError(
                    f"{self.folder} is being searched by another process: wait for it, or pass "
                    "another output.root"
                )
            path = self.folder / DATABASE
            with study.opened(path, self.space, self.options, self.spec) as trials:
                found = self._tuned(trials, run_jobs, rounds, console)
            if found.chosen is not None and self.options.test_seeds:
                arms = tested(
                    found.chosen, self.fixed, self.options, self.folder, run_jobs, console
                )
                found = replace(found, arms=arms)
            report.write(found, console)
        return found

    def _tuned(
        self, trials: study.Study, run_jobs: RunJobs, rounds: Rounds, console: Console
    ) -> report.Found:
        Tuning(self.options, trials, self.fixed, self.folder, run_jobs, rounds, console).run()
        return report.Found(
            folder=self.folder,
            fixed=self.fixed,
            space=self.space,
            options=self.options,
            trials=trials.trials(),
            importances=trials.importances(),
            code=self.code,
        )
