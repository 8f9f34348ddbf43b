"""`rlhf-lab COMMAND ARGUMENTS`: the table of commands, and the program that runs one of them."""

from __future__ import annotations

import difflib
import errno
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

from rlhf_lab.cli.arguments import refuse_secrets, without_flag
from rlhf_lab.cli.command import MULTIRUN, Command, HydraCommand
from rlhf_lab.cli.exit_codes import (
    BAD_INPUT,
    FAILED,
    complain,
    end_rank,
    exit_code,
    mask_tracebacks,
)
from rlhf_lab.cli.parent import Report, in_child, start_again
from rlhf_lab.experiment.config.plugins import activate_for
from rlhf_lab.runs.foreign import see_working_folder
from rlhf_lab.runs.kernels import RestartNeeded
from rlhf_lab.runs.output import CLOSED, lost, protect_output
from rlhf_lab.runs.provenance import commit, version
from rlhf_lab.runs.signals import TORCHRUN, listening
from rlhf_lab.runs.trust import FLAG, trusting
from rlhf_lab.training.engines import ranks
from rlhf_lab.types.errors import UserError

# Commands with their files, in the order of `rlhf-lab --help`; a constant there has the command's
# name in capitals.
FILES = """
data:stages train:train sft:stages label:stages relabel:stages reward-model:stages stages:stages
evaluate:evaluate implicit-reward:evaluate pipeline:train sweep:sweep runs:runs watch:watch
verify:verify samples:samples chat:export resume:train replay:train fork:train attribute:attribute
timeline:timeline serve:launch launch:launch export:export sync:sync report:analysis plot:analysis
figures:analysis tables:analysis compare:analysis publication-tables:analysis claims:analysis
plan:plan cluster:plan explain:explain completion:completion
"""
# What the scripts of `rlhf-lab completion` ask.
COMPLETE = "__complete"
# Read from what is installed: importing torch for its number would take seconds.
LIBRARIES = ("torch", "transformers", "hydra-core")


class Commands(Mapping[str, Command]):
    """The commands by name. A file is imported when a command of it is needed, so that one command
    does not wait for the others."""

    def __init__(self) -> None:
        self._files = dict(pair.split(":") for pair in FILES.split())

    def __getitem__(self, name: str) -> Command:
        module = import_module(f"rlhf_lab.cli.{self._files[name]}")
        command: Command = getattr(module, name.replace("-", "_").upper())
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


COMMANDS = Commands()


def usage() -> str:
    """What `rlhf-lab --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "rlhf-lab COMMAND [group=option ...] [key.subkey=value ...] [-m for a sweep]",
            "",
            *lines,
            "",
            "rlhf-lab COMMAND --help, or rlhf-lab help COMMAND, lists its options with an example;",
            "rlhf-lab --version is what runs here.",
        ]
    )


def version_text() -> str:
    """The versions of this package, of its commit in a checkout, of Python and of libraries, for
    the report of a bug."""
    code = commit()
    place = ""
    if code:
        place = f" (commit {code['commit'][:12]}{', changed' if code['is_dirty'] else ''})"
    libraries = [f"{name} {version(name) or 'not installed'}" for name in LIBRARIES]
    words = [f"rlhf-lab {version('rlhf-lab')}{place}", f"Python {platform.python_version()}"]
    return ", ".join([*words, *libraries])


def main() -> int:
    """Console script. 0: done. 2: input refused. 75: stopped by a signal, to be run again.
    130: interrupted. Other errors are raised.

    A command that composes a config runs in a child process (cli.parent); of several that torchrun
    started, in the main one alone, since the others end when it does."""
    protect_output()
    arguments = sys.argv[1:]
    command = COMMANDS.get(arguments[0]) if arguments else None
    if isinstance(command, HydraCommand) and ranks.is_first():
        return in_child(command.name, command_line)
    code = command_line()
    if reasons := set(lost().values()) - {CLOSED, os.strerror(errno.EPIPE)}:
        # It is all that such a command does.
        complain(" ".join(arguments[:1]), f"its output could not be written: {reasons.pop()}")
        return code or FAILED
    return code


def command_line(report: Report | None = None) -> int:
    """Run the command of sys.argv in this process. Returns its exit code, which is reported first:
    what happens after it is no part of the command."""
    mask_tracebacks()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    arguments = sys.argv[1:]
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if (text := text_without_command(arguments)) is not None:
        sys.stdout.write(text + "\n")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        sys.stderr.write(f"rlhf-lab: {unknown(arguments[0])}\n")
        return BAD_INPUT
    with listening(starting=command.name):
        try:
            code = exit_code(command.name, lambda: run_in_its_rank(command, arguments[1:]))
        except RestartNeeded as restart:
            if report is None:
                start_again(arguments, restart.variables)
            report(0, restart.variables)
            return 0
    if report is not None:
        report(code, {})
    if ranks.has_joined():
        end_rank(code)
    return code


def text_without_command(arguments: list[str]) -> str | None:
    """What is printed where no command runs; None where one does."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return usage()
    if arguments[0] == "--version":
        return version_text()
    if arguments[0] == COMPLETE:
        from rlhf_lab.cli.completion import candidates

        return "\n".join(candidates(arguments[1:], COMMANDS))
    return None


def unknown(name: str) -> str:
    """The refusal of a word that is no command."""
    near = difflib.get_close_matches(name, COMMANDS, n=2)
    question = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown command {name!r}: {question}`rlhf-lab --help` lists the commands"


def run_in_its_rank(command: Command, arguments: list[str]) -> int:
    """Run a command. Under torchrun the main process alone runs it: the others train with it, and
    end here. Several processes are refused for what one does alone: training and evaluation use
    them, one run at a time. A process alone forgets what is left of torchrun's variables."""
    if not command.is_distributed and TORCHRUN not in os.environ:
        ranks.forget()
    if (world_size := ranks.world_size()) == 1:
        ranks.forget()
    if world_size > 1 and not command.is_distributed:
        names = ", ".join(name for name, other in COMMANDS.items() if other.is_distributed)
        raise UserError(
            f"rlhf-lab {command.name} with {world_size} processes (WORLD_SIZE): only {names} "
            "make use of them; start it without torchrun"
        )
    if world_size > 1 and (flags := MULTIRUN & set(arguments)):
        raise UserError(
            f"rlhf-lab {command.name} {' '.join(sorted(flags))} with {world_size} processes "
            "(WORLD_SIZE): a sweep starts runs of one process each; start it without torchrun, or "
            "start every run with a torchrun of its own"
        )
    if world_size > 1:
        from rlhf_lab.experiment.run.train import run_worker_rank

        if ranks.rank() > 0:
            see_working_folder()  # the main process sends parts of plugins by name
            run_worker_rank()
    return run_command(command.name, arguments)


def run_command(name: str, arguments: list[str]) -> int:
    """Run a command in this process, or print its help. Returns the exit code."""
    refuse_secrets(arguments)
    command = COMMANDS[name]
    if "--help" in arguments or "-h" in arguments:
        activate_for(arguments)
        sys.stdout.write(command.help())
        return 0
    if "--version" in arguments:
        sys.stdout.write(version_text() + "\n")
        return 0
    rest, is_trusted = without_flag(arguments, FLAG)
    if is_trusted and FLAG not in command.usage:
        raise UserError(f"{FLAG} is no flag of {name}: {command.line}")
    with trusting(is_trusted):
        return command.run(rest)


if __name__ == "__main__":
    sys.exit(main())
