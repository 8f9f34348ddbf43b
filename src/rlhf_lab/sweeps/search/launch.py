"""Start a search: its space from overrides, its runs through Hydra's launcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.checks import check, require_readable_splits, require_working_parts
from rlhf_lab.experiment.config import Config
from rlhf_lab.runs.folder import make_folder
from rlhf_lab.runs.provenance import code_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import Grid
from rlhf_lab.sweeps.job import Job, content_of, state_of
from rlhf_lab.sweeps.launch_jobs import Ended, run_jobs
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.plan_jobs import Context, compose_config, job_from_config
from rlhf_lab.sweeps.search.options import SearchOptions, bad_option
from rlhf_lab.sweeps.search.result import SearchResult
from rlhf_lab.sweeps.search.runs import Outcome, SearchRun
from rlhf_lab.sweeps.search.search import Search
from rlhf_lab.sweeps.search.space import parse_space, to_overrides
from rlhf_lab.sweeps.search.tuning import bracket_cost, num_brackets
from rlhf_lab.sweeps.sweep import folder_of, set_folder
from rlhf_lab.sweeps.sweep_cost import PastRuns, predict_cost
from rlhf_lab.types.errors import JobsFailed, UserError


def search(
    context: Context, arguments: Sequence[str], options: SearchOptions, sweeper: SweeperOptions
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


# The folder of trained reward models in the cache.
PROXY = "reward_model"


@contextmanager
def checked(context: Context, overrides: Sequence[str]) -> Iterator[Config]:
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

    context: Context
    search: Search
    sweeper: SweeperOptions

    def count_rounds(self, overrides: Sequence[str]) -> int:
        """The rounds of a run with these overrides."""
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
        return [outcome(job, states[name], here.get(name)) for name, job in jobs.items()]

    def _job(self, run: SearchRun) -> Job:
        with checked(self.context, run.overrides) as config:
            folder = self.search.folder
            return job_from_config(self.context, run.point, list(run.overrides), config, folder)


def proxy_folders(config: Config) -> list[Path]:
    """The reward models that a run's pipeline trains."""
    from rlhf_lab.experiment.prepare import Artifacts

    found = Artifacts(config, Console(quiet=True)).folders()
    return [folder for folder in found if folder.parent.name == PROXY]


def outcome(job: Job, before: str, ended: Ended | None) -> Outcome:
    """How a job ended, in this launch or an earlier one."""
    if ended is not None:
        return Outcome(ended.state, ended.problem)
    if before == "failed":
        return Outcome(before, f"failed before, and was not run again (log {job.log})")
    return Outcome(before)
