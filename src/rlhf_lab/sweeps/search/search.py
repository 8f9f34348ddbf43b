"""Run a search: tune, choose, test, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check, require_readable_splits, require_working_parts
from rlhf_lab.runs.folder import make_folder
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import Grid
from rlhf_lab.sweeps.job import Job, content_of, state_of
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.plan_jobs import SweepContext, compose_config, job_from_config
from rlhf_lab.sweeps.preview import PastRuns, predict_cost
from rlhf_lab.sweeps.search import report
from rlhf_lab.sweeps.search.final_test import run_test
from rlhf_lab.sweeps.search.options import SearchOptions, bad_option
from rlhf_lab.sweeps.search.report import SearchResult
from rlhf_lab.sweeps.search.runs import CountRounds, Outcome, RunJobs, SearchRun, rung_overrides
from rlhf_lab.sweeps.search.space import Dimension, parse_space, to_overrides
from rlhf_lab.sweeps.search.study import BASE, CODE, open_study
from rlhf_lab.sweeps.search.tuning import Halving, Tuning, bracket_cost, num_brackets
from rlhf_lab.sweeps.sweep import Ended, folder_of, run_jobs, set_folder
from rlhf_lab.types.errors import JobsFailed, UserError

DATABASE = "study.db"
LOCK = ".search.lock"
# Options that may change when a search is continued: its length, and its test.
FREE = ("trials", "max_runs", "test_seeds", "test_overrides", "keep")
# The folder of trained reward models in the cache.
PROXY = "reward_model"


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
        return {**options, "space": space, BASE: self.base, **code}

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
                parts = (self.fixed, self.folder, run_jobs, count_rounds, console)
                Tuning(self.options, trials, *parts).run()
                found = SearchResult(
                    folder=self.folder,
                    fixed=self.fixed,
                    space=self.space,
                    options=self.options,
                    trials=trials.trials(),
                    importances=trials.importances(),
                    code=self.code,
                )
            if found.chosen is not None and self.options.test_seeds:
                arms = run_test(
                    found.chosen, self.fixed, self.options, self.folder, run_jobs, console
                )
                found = replace(found, arms=arms)
            report.write(found, console)
        return found


def search(
    context: SweepContext, arguments: Sequence[str], options: SearchOptions, sweeper: SweeperOptions
) -> SearchResult | None:
    """Run the search of these overrides, or only print its plan. Raises JobsFailed if no setting
    could be chosen, or if a run of the test failed."""
    console = Console(quiet=False)
    parser = OverridesParser.create(config_loader=context.hydra.config_loader)
    fixed, space = parse_space(arguments, parser)
    folder = folder_of(context, Grid(tuple(fixed), {one.key: (one.label,) for one in space}))
    set_folder(context, folder)
    with checked(context, fixed) as config:
        if config.output.dir:
            raise UserError(
                f"output.dir={config.output.dir} in a search: its runs have folders of their own; "
                "leave it out"
            )
        require_readable_splits(config)
        require_working_parts(config)
        base = content_of(config)
    keeps = sweeper.other_code == "keep"
    tuned = Search(folder, fixed, space, options, base, code_version(), keeps)
    launcher = RunLauncher(context, tuned, sweeper)
    launcher.check_values()
    console.print(f"search {folder}, code {tuned.code}")
    for line in [*tuned.plan(launcher.count_rounds), *launcher.predicted()]:
        console.print(line)
    if sweeper.dry:
        return None
    make_folder(folder, "output.root")
    found = tuned.run(launcher.start, launcher.count_rounds, console)
    problems = [] if found.arms is None else [arm for arm in found.arms if arm.problems]
    if found.chosen is None or problems:
        what = "no trial came to the last rung" if found.chosen is None else "test runs failed"
        raise JobsFailed(
            f"{what} (see {folder / 'search.md'}): the same command with "
            "hydra.sweeper.rerun=failed runs failed test runs again; a failed trial stays failed, "
            "since which others went on followed from it"
        )
    return found


@contextmanager
def checked(context: SweepContext, overrides: Sequence[str]) -> Iterator[Config]:
    """The config of overrides, checked. Raises UserError if no run could start with it."""
    try:
        with compose_config(context, overrides) as config:
            check(config)
            yield config
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__
        raise UserError(str(error) if cause is None else f"{error}: {cause}") from error


@dataclass(frozen=True)
class RunLauncher:
    """Runs of a search as jobs of Hydra's launcher."""

    context: SweepContext
    search: Search
    sweeper: SweeperOptions

    def count_rounds(self, overrides: Sequence[str]) -> int:
        with checked(self.context, overrides) as config:
            return config.run.num_rounds

    def check_values(self) -> None:
        """Refuse unknown keys, and invalid values: each choice, and both ends of an interval, with
        the defaults of all other keys. Refuse a test without evaluation."""
        with checked(self.context, self.search.fixed) as config:
            proxy = proxy_folders(config)
        for part in self.search.space:
            for value in part.values or (part.low, part.high):
                own = to_overrides({part.key: value})
                with checked(self.context, [*self.search.fixed, *own]) as config:
                    if self.search.options.needs_proxy and proxy_folders(config) != proxy:
                        raise UserError(
                            f"{own[0]} makes another proxy than the other settings have, and "
                            f"{self.search.options.metric} would measure them by different ones: "
                            f"give {part.key} one value, or pass a proxy by its path (reward.path)"
                        )
        options = self.search.options
        with checked(self.context, [*self.search.fixed, *options.test_overrides]) as config:
            if options.test_seeds and not config.eval.snapshots:
                raise bad_option(
                    "test_seeds",
                    options.test_seeds,
                    "eval.snapshots=0 leaves nothing to compare; pass eval.snapshots=1, or "
                    "hydra.sweeper.test_seeds=[] to choose without a test",
                )

    def predicted(self) -> list[str]:
        """Predicted device-hours of tuning and test, if a run like these was measured."""
        options = self.search.options
        job = self._job(SearchRun({}, tuple(self.search.fixed)))
        rates = PastRuns(self.search.folder.parent)
        cost = predict_cost([job], rates)
        if cost.unknown:
            return ["time: unknown, since no finished run of this task and model is measured"]
        tuning = num_brackets(options) * bracket_cost(options)
        hours = cost.device_seconds / 3600
        test = 2 * len(options.test_seeds)
        return [
            f"predicted: {tuning * hours:.2f} device-hours of tuning at most, {test * hours:.2f} "
            "of test (with the default setting)"
        ]

    def start(self, runs: Sequence[SearchRun]) -> list[Outcome]:
        """Run those that are not finished, and return how all of them ended."""
        jobs = {run.name: self._job(run) for run in runs}
        states = {name: state_of(job).name for name, job in jobs.items()}
        passed = ("finished",) if self.sweeper.rerun == "failed" else ("finished", "failed")
        todo = [job for name, job in jobs.items() if states[name] not in passed]
        folder = self.search.folder
        ended = run_jobs(self.context, todo, folder, self.sweeper) if todo else []
        here = {one.job.name: one for one in ended}
        return [outcome_of(job, states[name], here.get(name)) for name, job in jobs.items()]

    def _job(self, run: SearchRun) -> Job:
        with checked(self.context, run.overrides) as config:
            folder = self.search.folder
            return job_from_config(self.context, run.point, list(run.overrides), config, folder)


def proxy_folders(config: Config) -> list[Path]:
    """The reward models that a run's pipeline trains."""
    from rlhf_lab.experiment.artifacts.prepare import Artifacts

    found = Artifacts(config, Console(quiet=True)).folders()
    return [folder for folder in found if folder.parent.name == PROXY]


def outcome_of(job: Job, before: str, ended: Ended | None) -> Outcome:
    """How a job ended, in this launch or an earlier one."""
    if ended is not None:
        return Outcome(ended.state, ended.problem)
    if before == "failed":
        return Outcome(before, f"failed before, and was not run again (log {job.log})")
    return Outcome(before)
