"""Run a search: tune, choose, test, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search import report
from rlhf_lab.sweeps.search.final_test import run_test
from rlhf_lab.sweeps.search.halving import Halving
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.result import SearchResult
from rlhf_lab.sweeps.search.runs import CountRounds, RunJobs, rung_overrides
from rlhf_lab.sweeps.search.space import Dimension
from rlhf_lab.sweeps.search.study import Study
from rlhf_lab.sweeps.search.study_file import CODE, open_study
from rlhf_lab.sweeps.search.tuning import Tuning, bracket_cost, num_brackets
from rlhf_lab.types.errors import UserError

DATABASE = "study.db"
LOCK = ".search.lock"
# Options that may change when a search is continued: its length, and its test.
FREE = ("trials", "max_runs", "test_seeds", "test_overrides", "keep")


@dataclass(frozen=True)
class Search:
    """A search. fixed: overrides of all runs. base: hash of the config that they share. code: its
    version, which may differ when a search is continued with takes_other_code."""

    folder: Path
    fixed: Sequence[str]
    space: Sequence[Dimension]
    options: SearchOptions
    base: str
    code: str
    takes_other_code: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """What must be the same when the search is continued."""
        names = [key for key in vars(self.options) if key not in FREE]
        options = {key: getattr(self.options, key) for key in names}
        space = {part.key: part.label for part in self.space}
        code = {} if self.takes_other_code else {CODE: self.code}
        return {**options, "space": space, "base": self.base, **code}

    def plan(self, count_rounds: CountRounds) -> list[str]:
        """The runs of the search, as lines of text. Raises UserError if one could not start."""
        options, halving = self.options, Halving.of(self.options)
        num_rounds = count_rounds([*self.fixed, *rung_overrides(options, 0, 0)])
        count_rounds([*self.fixed, *options.test_overrides])
        pauses, sizes = halving.pauses(num_rounds), halving.sizes(options.bracket_size)
        count_rounds([*self.fixed, *rung_overrides(options, pauses[0], num_rounds)])
        brackets, seeds = num_brackets(options), len(options.tuning_seeds)
        steps = ", ".join(f"{s} settings to round {p}" for s, p in zip(sizes, pauses, strict=True))
        return [
            *(f"  {part.key}: {part.label}" for part in self.space),
            f"{brackets} brackets on {seeds} tuning seeds: {steps} of {num_rounds} (of the default "
            f"setting), {options.metric} on {options.measured_on.value}, "
            f"{options.direction.value}d",
            f"tuning amounts to {brackets * bracket_cost(options):g} whole runs at most, then "
            f"{2 * len(options.test_seeds)} runs on the test seeds",
        ]

    def run(self, run_jobs: RunJobs, count_rounds: CountRounds, console: Console) -> SearchResult:
        """Tune, choose, test, and report. Raises StopRequested if a run was stopped; the same
        search resumes there. Raises UserError if another process searches in the folder."""
        with try_lock(self.folder / LOCK) as is_ours:
            if not is_ours:
                raise UserError(
                    f"{self.folder} is being searched by another process: wait for it, or pass "
                    "another output.root"
                )
            path = self.folder / DATABASE
            with open_study(path, self.space, self.options, self.spec) as trials:
                found = self._tuned(trials, run_jobs, count_rounds, console)
            if found.chosen is not None and self.options.test_seeds:
                arms = run_test(
                    found.chosen, self.fixed, self.options, self.folder, run_jobs, console
                )
                found = replace(found, arms=arms)
            report.write(found, console)
        return found

    def _tuned(
        self, trials: Study, run_jobs: RunJobs, count_rounds: CountRounds, console: Console
    ) -> SearchResult:
        Tuning(self.options, trials, self.fixed, self.folder, run_jobs, count_rounds, console).run()
        return SearchResult(
            folder=self.folder,
            fixed=self.fixed,
            space=self.space,
            options=self.options,
            trials=trials.trials(),
            importances=trials.importances(),
            code=self.code,
        )
