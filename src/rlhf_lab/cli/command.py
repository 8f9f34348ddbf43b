"""What a command of `rlhf-lab` is: its name, its help, and what runs it on its arguments.

The file of a command imports at its top only what its help needs; what it runs is imported when it
runs, so that `rlhf-lab --help` and commands that only read load no torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from rlhf_lab.cli.arguments import enter_start_folder, is_option, without_flag
from rlhf_lab.experiment.artifacts.products import MAKE_STAGES
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.runs.signals import begun
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

MULTIRUN = frozenset({"-m", "--multirun"})
OVERRIDES = "[group=option ...] [key.subkey=value ...] [-m for a sweep]"


def screen() -> Console:
    """Shows a terminal that a command begins; elsewhere nothing, so that what it prints, or a
    refusal, comes alone."""
    return Console(quiet=not sys.stdout.isatty())


class Parser(argparse.ArgumentParser):
    """Refuses arguments as every command does: in one line, with the usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: {self.usage}")


@dataclass(frozen=True)
class Command:
    """One command, as `rlhf-lab --help` lists it.

    example: its arguments in an example. usage: its arguments in general. is_distributed: several
    processes, started by torchrun, can run it together. completes: what its words are, for Tab:
    folders, keys, or a layout and overrides.
    """

    name: str
    summary: str
    example: str
    usage: str = OVERRIDES
    is_distributed: bool = False
    completes: Literal["", "folders", "keys", "layout"] = ""

    def help(self) -> str:
        """What `rlhf-lab NAME --help` prints."""
        raise NotImplementedError

    def run(self, arguments: list[str]) -> int:
        """Run the command. Returns the exit code; errors are the caller's."""
        raise NotImplementedError

    def run_folder(self, arguments: Sequence[str]) -> Path:
        """The run that the first argument names."""
        if not arguments or is_option(arguments[0]):
            raise UserError(f"rlhf-lab {self.name} needs a run's folder: {self.line}")
        return Path(arguments[0])

    @property
    def line(self) -> str:
        """The command as a person types it, with its arguments in general."""
        return f"rlhf-lab {self.name} {self.usage}"

    @property
    def heading(self) -> list[str]:
        """The lines that the help of a command without a parser begins with."""
        return [f"usage: {self.line}", "", self.summary, "", self.example_line, ""]

    @property
    def example_line(self) -> str:
        return f"example: rlhf-lab {self.name} {self.example}"


@dataclass(frozen=True, kw_only=True)
class OptionsCommand(Command):
    """A command with a parser of options. action: runs it on them; returns the exit code."""

    add_options: Callable[[argparse.ArgumentParser], None]
    action: Callable[[argparse.Namespace, Console], int]

    def parser(self) -> argparse.ArgumentParser:
        parser = Parser(
            prog=f"rlhf-lab {self.name}",
            usage=self.line,
            description=self.summary,
            epilog=self.example_line,
            allow_abbrev=False,
        )
        self.add_options(parser)
        return parser

    def help(self) -> str:
        return self.parser().format_help()

    def run(self, arguments: list[str], console: Console | None = None) -> int:
        """Read the arguments and act. console: tests pass their own."""
        # Commands of analysis declare their options where pandas and scipy are imported.
        with screen().phase(f"loading {self.name}"):
            options = self.parser().parse_intermixed_args(arguments)
        begun()
        return self.action(options, console or Console(quiet=False))


@dataclass(frozen=True, kw_only=True)
class HydraCommand(Command):
    """A command that runs a job for every config which Hydra composes from its overrides.

    job_command: the command that a sweep starts for each job, where it is another than this one.
    of_run: for a command whose first argument is a run: the overrides for it, with
    changes to them.
    """

    job: Callable[[DictConfig], None]
    job_command: str = ""
    of_run: Callable[[Path, Sequence[str]], list[str]] | None = None

    def help(self) -> str:
        groups = group_options()
        width = max(map(len, groups))
        return "\n".join(
            [
                *self.heading,
                "Config groups (group=option):",
                *(f"  {group:<{width}}  {' '.join(names)}" for group, names in groups.items()),
                "",
                "The proxy's model is at proxy (model@proxy=nano_m), the judge at judge",
                "(reward@judge=task_rule). `rlhf-lab explain KEY` describes a key or a group.",
                "Single values: run.updates_per_round=4 mode.max_staleness=2 algo.beta=0.2 seed=3.",
                "Sweeps: -m seed=1,2,3 mode=sync,async. All keys: docs/config.md, or --cfg job.",
                "",
            ]
        )

    def run(self, arguments: list[str]) -> int:
        with screen().phase("loading Hydra"):
            from rlhf_lab.cli.compose import compose

        run = None
        if self.of_run is not None:
            run = self.run_folder(arguments)
            arguments = self.of_run(run, arguments[1:])
        compose(self.job, arguments, self.job_command or self.name, run)
        return 0


@dataclass(frozen=True, kw_only=True)
class RunCommand(HydraCommand):
    """The same with a run as its first argument. job_of_run: the job, with whether missing
    artifacts that the run was made from are made again (--make-stages)."""

    job_of_run: Callable[[DictConfig, bool], None]

    def help(self) -> str:
        about = "makes what the run was made from (SFT policy, proxy) anew, if it is gone."
        return f"{super().help()}{MAKE_STAGES} {about}\n"

    def run(self, arguments: list[str]) -> int:
        rest, may_make = without_flag(arguments, MAKE_STAGES)

        def job(cfg: DictConfig) -> None:
            self.job_of_run(cfg, may_make)

        # As a plain command, whose run begins where this one began.
        return HydraCommand.run(
            replace(self, job=job), enter_start_folder(self.run_folder(rest), rest)
        )
