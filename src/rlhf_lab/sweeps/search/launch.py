"""A search with real runs: configs from Hydra, jobs through the launcher, the report at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.checks import check, require_readable_splits, require_working_rewards
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.runs.folder import make_folder
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.forecast import Rates, forecast
from rlhf_lab.sweeps.grid import Grid
from rlhf_lab.sweeps.job import Job, content_of, state_of
from rlhf_lab.sweeps.jobs import Context, Planned, composed, of_config
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.search.jobs import Outcome, Run
from rlhf_lab.sweeps.search.options import SearchOptions, refused
from rlhf_lab.sweeps.search.report import Found
from rlhf_lab.sweeps.search.search import Search
from rlhf_lab.sweeps.search.space import split, written
from rlhf_lab.sweeps.search.tuning import bracket_cost, num_brackets
from rlhf_lab.sweeps.sweep import Ended, folder_of, run_jobs, settle
from rlhf_lab.types.errors import JobsFailed, UserError


def search(
    context: Context, arguments: Sequence[str], options: SearchOptions, sweeper: SweeperOptions
) -> Found | None:
    """Search with the runs of these overrides, or only say what would be done. Raises JobsFailed if
    nothing could be chosen, or a run of the test failed."""
    console = Console(quiet=False)
    parser = OverridesParser.create(config_loader=context.hydra.config_loader)
    fixed, space = split(arguments, parser)
    folder = folder_of(context, Grid(tuple(fixed), {one.key: (one.told,) for one in space}))
    settle(context, folder)
    with checked(context, fixed) as config:
        if config.output.dir:
            raise UserError(
                f"output.dir={config.output.dir} in a search: its runs have folders of their own; "
                "leave it out"
            )
        require_readable_splits(config)
        require_working_rewards(config)
        base = content_of(config)
    keeps = sweeper.other_code == "keep"
    wanted = Search(folder, fixed, space, options, base, code_version(), keeps)
    runs = Runs(context, wanted, sweeper)
    runs.check_values()
    console.print(f"search {folder}, code {wanted.code}")
    for line in [*wanted.plan(runs.rounds), *runs.predicted()]:
        console.print(line)
    if sweeper.dry:
        return None
    make_folder(folder, "output.root")
    found = wanted.run(runs.started, runs.rounds, console)
    problems = [] if found.arms is None else [arm for arm in found.arms if arm.problems]
    if found.chosen is None or problems:
        what = "no trial came to the last rung" if found.chosen is None else "test runs failed"
        raise JobsFailed(
            f"{what} (see {folder / 'search.md'}): the same command with "
            "hydra.sweeper.rerun=failed runs failed test runs again; a failed trial stays failed, "
            "since which others went on followed from it"
        )
    return found


# Where the cache keeps the reward models that the pipeline makes.
PROXY = "reward_model"


@contextmanager
def checked(context: Context, overrides: Sequence[str]) -> Iterator[Config]:
    """The config of overrides that a run could start with. Raises UserError for others."""
    try:
        with composed(context, overrides) as config:
            check(config)
            yield config
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__
        raise UserError(str(error) if cause is None else f"{error}: {cause}") from error


@dataclass(frozen=True)
class Runs:
    """The runs of a search, as jobs of the launcher that was chosen."""

    context: Context
    wanted: Search
    sweeper: SweeperOptions

    def rounds(self, overrides: Sequence[str]) -> int:
        """Rounds of a run."""
        with checked(self.context, overrides) as config:
            return config.run.num_rounds

    def check_values(self) -> None:
        """Refuse keys that do not exist, and values that cannot be where all else is as it is by
        default: the ends of an interval, all others. Refuse a test that nobody judges."""
        with checked(self.context, self.wanted.fixed) as config:
            measure = proxies(config)
        for part in self.wanted.space:
            for value in part.values or (part.low, part.high):
                own = written({part.key: value})
                with checked(self.context, [*self.wanted.fixed, *own]) as config:
                    if self.wanted.options.asks_proxy and proxies(config) != measure:
                        raise UserError(
                            f"{own[0]} makes another proxy than the other settings have, and "
                            f"{self.wanted.options.metric} would measure them by different ones: "
                            f"give {part.key} one value, or pass a proxy by its path (reward.path)"
                        )
        options = self.wanted.options
        with checked(self.context, [*self.wanted.fixed, *options.test_overrides]) as config:
            if options.test_seeds and not config.eval.snapshots:
                raise refused(
                    "test_seeds",
                    options.test_seeds,
                    "eval.snapshots=0 leaves nothing to compare; pass eval.snapshots=1, or "
                    "hydra.sweeper.test_seeds=[] to choose without a test",
                )

    def predicted(self) -> list[str]:
        """Device-hours of tuning and test, if a run like these was measured."""
        options = self.wanted.options
        run = self._planned(Run({}, tuple(self.wanted.fixed)))
        rates = Rates(self.wanted.folder.parent)
        found = forecast([run.wanted], rates)
        if found.unknown:
            return ["time: unknown, since no finished run of this task and model is measured"]
        tuning = num_brackets(options) * bracket_cost(options)
        hours = found.device_seconds / 3600
        test = 2 * len(options.test_seeds)
        return [
            f"predicted: {tuning * hours:.2f} device-hours of tuning at most, {test * hours:.2f} "
            "of test (with the default setting)"
        ]

    def started(self, runs: Sequence[Run]) -> list[Outcome]:
        """Start the runs that are not finished, and wait for them."""
        jobs = {run.name: self._planned(run).job for run in runs}
        states = {name: state_of(job).name for name, job in jobs.items()}
        passed = ("finished",) if self.sweeper.rerun == "failed" else ("finished", "failed")
        todo = [job for name, job in jobs.items() if states[name] not in passed]
        folder = self.wanted.folder
        ended = run_jobs(self.context, todo, folder, self.sweeper) if todo else []
        here = {one.job.name: one for one in ended}
        return [outcome(job, states[name], here.get(name)) for name, job in jobs.items()]

    def _planned(self, run: Run) -> Planned:
        with checked(self.context, run.overrides) as config:
            folder = self.wanted.folder
            return of_config(self.context, run.point, list(run.overrides), config, folder)


def proxies(config: Config) -> list[Path]:
    """The reward models that a run's pipeline makes for it."""
    found = Artifacts(config, Console(quiet=True)).folders()
    return [folder for folder in found if folder.parent.name == PROXY]


def outcome(job: Job, before: str, ended: Ended | None) -> Outcome:
    """What became of a job: now, or in an earlier try."""
    if ended is not None:
        return Outcome(ended.state, ended.problem)
    if before == "failed":
        return Outcome(before, f"failed before, and was not run again (log {job.log})")
    return Outcome(before)
