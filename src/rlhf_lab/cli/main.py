"""`rlhf-lab COMMAND ARGUMENTS`: the table of commands, and the program that runs one of them."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from rlhf_lab.cli.arguments import refuse_secrets
from rlhf_lab.cli.command import MULTIRUN, Command
from rlhf_lab.cli.endings import BAD_INPUT, end_rank, exit_code
from rlhf_lab.cli.version import version_text
from rlhf_lab.experiment.plugins import activate_for
from rlhf_lab.runs.foreign import see_working_folder
from rlhf_lab.runs.kernels import RestartNeeded
from rlhf_lab.training.engines.ranks import has_joined
from rlhf_lab.types.errors import UserError

# Files of commands, in the order of `rlhf-lab --help`. A new command is a file and a word here.
MODULES = """
data train sft label relabel reward_model stages evaluate implicit_reward pipeline sweep runs watch
samples chat resume replay fork attribute timeline serve launch export sync report plot figures
tables compare publication_tables claims plan cluster explain completion
""".split()

# What the scripts of `rlhf-lab completion` ask.
COMPLETE = "__complete"


class Commands(Mapping[str, Command]):
    """The commands by name, that of their file with dashes. A file is imported when its command is
    asked for, so that one command does not wait for the others."""

    def __getitem__(self, name: str) -> Command:
        module = dict(zip(self, MODULES, strict=True))[name]
        command: Command = import_module(f"rlhf_lab.cli.{module}").COMMAND
        return command

    def __iter__(self) -> Iterator[str]:
        return (module.replace("_", "-") for module in MODULES)

    def __len__(self) -> int:
        return len(MODULES)


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


def main() -> int:
    """Console script. 0: done. 2: input refused. 75: stopped by a signal, to be run again.
    130: interrupted. Other errors are raised."""
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
    try:
        code = exit_code(command.name, lambda: run_in_its_rank(command, arguments[1:]))
    except RestartNeeded as restart:
        sys.stdout.flush()
        words = [sys.executable, "-m", "rlhf_lab.cli.main", *arguments]
        os.execve(sys.executable, words, os.environ | restart.variables)
    if has_joined():
        end_rank(code)
    return code


def text_without_command(arguments: list[str]) -> str | None:
    """What is printed where no command runs; None where one does."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return usage()
    if arguments[0] == "--version":
        return version_text()
    if arguments[0] == COMPLETE:
        from rlhf_lab.cli.complete import candidates

        return "\n".join(candidates(arguments[1:], COMMANDS))
    return None


def unknown(name: str) -> str:
    """The refusal of a word that is no command."""
    near = difflib.get_close_matches(name, COMMANDS, n=2)
    question = f"did you mean {' or '.join(near)}? " if near else ""
    return f"unknown command {name!r}: {question}`rlhf-lab --help` lists the commands"


def run_in_its_rank(command: Command, arguments: list[str]) -> int:
    """Run a command. Under torchrun the main process alone runs it: the others train with it, and
    end here."""
    if (world_size := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        require_distributed(command, arguments, world_size)
        from rlhf_lab.experiment.train import run_worker_rank
        from rlhf_lab.training.engines.ranks import rank

        if rank() > 0:
            see_working_folder()  # the main process sends parts of plugins by name
            run_worker_rank()
    return run_command(command.name, arguments)


def require_distributed(command: Command, arguments: Sequence[str], world_size: int) -> None:
    """Refuse several processes for what one does alone: training and evaluation use them, one
    run at a time."""
    if not command.is_distributed:
        names = ", ".join(name for name, other in COMMANDS.items() if other.is_distributed)
        raise UserError(
            f"rlhf-lab {command.name} with {world_size} processes (WORLD_SIZE): only {names} "
            "make use of them; start it without torchrun"
        )
    if flags := MULTIRUN & set(arguments):
        raise UserError(
            f"rlhf-lab {command.name} {' '.join(sorted(flags))} with {world_size} processes "
            "(WORLD_SIZE): a sweep starts runs of one process each; start it without torchrun, or "
            "start every run with a torchrun of its own"
        )


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
    return command.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
