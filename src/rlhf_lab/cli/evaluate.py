"""`rlhf-lab evaluate`: the saved weights of runs, with the same options or with others; and
`rlhf-lab implicit-reward`: how well a policy that learned from pairs orders other pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.arguments import (
    leading_folders,
    overrides_again,
    recorded_config,
    recorded_overrides,
    without_flag,
)
from rlhf_lab.cli.command import MULTIRUN, OptionsCommand, RunCommand
from rlhf_lab.cli.exit_codes import BAD_INPUT, FAILED, complain, message, refusals, show_traceback
from rlhf_lab.experiment.artifacts.products import MAKE_STAGES
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rlhf_lab.experiment.config.config import Config
    from rlhf_lab.experiment.run.evaluate import Evaluated


def evaluate(cfg: DictConfig, may_make: bool = False) -> None:
    from rlhf_lab.cli.compose import checked

    config, console = checked(cfg)
    if config.eval.is_harness and (count := world_size()) > 1:
        raise UserError(
            f"eval={config.eval.name} with {count} processes (WORLD_SIZE): one alone runs the "
            "benchmarks; start it without torchrun"
        )
    from rlhf_lab.experiment.run.evaluate import show
    from rlhf_lab.experiment.run.evaluate_again import evaluate_again
    from rlhf_lab.training.engines.broadcast_engine import STOP
    from rlhf_lab.training.engines.distributed import main_rank

    with main_rank(STOP):
        evaluated = evaluate_again(config, console, may_make, config_before(cfg))
    show(console, [evaluated])


def config_before(cfg: DictConfig) -> Config | None:
    """The config that a run had, if it had another task than this one; inside a job of Hydra."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from rlhf_lab.experiment.config.typed import typed

    folder = Path(cfg.output.dir)
    if recorded_config(folder).get("task") == OmegaConf.to_container(cfg.task, resolve=True):
        return None
    loader = GlobalHydra.instance().config_loader()
    name = HydraConfig.get().job.config_name
    return typed(loader.load_configuration(name, recorded_overrides(folder), RunMode.RUN))


class EvaluateCommand(RunCommand):
    """The command for one run, or for several."""

    def run(self, arguments: list[str]) -> int:
        folders = leading_folders(arguments)
        if len(folders) < 2:
            return super().run(arguments)
        if (count := world_size()) > 1:
            raise UserError(
                f"rlhf-lab evaluate RUN RUN with {count} processes (WORLD_SIZE): pass one run at a "
                "time, or start it without torchrun"
            )
        changes, may_make = without_flag(arguments[len(folders) :], MAKE_STAGES)
        return evaluate_each(folders, changes, may_make)


def evaluate_each(folders: Sequence[str], changes: Sequence[str], may_make: bool) -> int:
    """Evaluate several runs, each with its own config. One that fails is reported and the others go
    on; each result is written at once."""
    from rlhf_lab.cli.compose import checked, compose
    from rlhf_lab.experiment.run.evaluate import show
    from rlhf_lab.experiment.run.evaluate_again import evaluate_again

    if MULTIRUN & set(changes):
        raise UserError("rlhf-lab evaluate RUN RUN -m: sweep over one run at a time")
    evaluated: list[Evaluated] = []
    is_quiet: list[bool] = []
    failures: dict[str, Exception] = {}

    def evaluate(cfg: DictConfig) -> None:
        config, console = checked(cfg)
        is_quiet.append(config.output.quiet)
        console.print(f"run {config.output.dir}")
        evaluated.append(evaluate_again(config, console, may_make, config_before(cfg)))

    for folder in folders:
        try:
            run = Path(folder)
            compose(evaluate, overrides_again(run, changes), run=run)
        except Exception as error:
            failures[folder] = error
            if not isinstance(error, refusals()):
                show_traceback(error)
            complain("evaluate", f"{folder}: {message(error)}")
    show(Console(quiet=all(is_quiet)), evaluated)
    if not failures:
        return 0
    complain("evaluate", f"{len(failures)} of {len(folders)} runs failed: {', '.join(failures)}")
    was_refused = all(isinstance(error, refusals()) for error in failures.values())
    return BAD_INPUT if was_refused else FAILED


EVALUATE = EvaluateCommand(
    "evaluate",
    "evaluate the saved weights of runs",
    "runs/RUN eval=full",
    job=evaluate,
    job_of_run=evaluate,
    usage="RUN [RUN ...] [eval=full ...] [--make-stages] [--trust] [-m for a sweep over one run]",
    of_run=overrides_again,
    is_distributed=True,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a finished run, as of algo=dpo")


def show_implicit_reward(options: argparse.Namespace, console: Console) -> int:
    overrides = overrides_again(options.run, [])
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config.typed import typed

    def write(cfg: DictConfig) -> None:
        config = typed(cfg)
        from rlhf_lab.experiment.publish import implicit_reward

        found = implicit_reward.compare(config, options.run, console)
        console.table("held-out pairs", implicit_reward.COLUMNS, found.rows())

    compose(write, overrides, run=options.run)
    return 0


IMPLICIT_REWARD = OptionsCommand(
    "implicit-reward",
    "compare a policy's implicit reward with a reward model",
    "runs/RUN",
    usage="RUN [--trust]",
    completes="folders",
    add_options=add_options,
    action=show_implicit_reward,
)
