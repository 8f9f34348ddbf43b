"""`rlhf-lab export` and `rlhf-lab chat`: a version of a run's policy as a folder that transformers
loads, with its card, here or on the hub; and as a partner to talk to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.cli.arguments import is_option, overrides_again
from rlhf_lab.cli.command import Command, OptionsCommand
from rlhf_lab.experiment.artifacts.products import MAKE_STAGES
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

PROMPT = "> "


def add_export_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(MAKE_STAGES, action="store_true", help="make the start of an unfinished run, if it is gone")
    add("words", nargs="*", metavar="RUN [FOLDER]", help="the run, and the folder to write")
    parser.add_argument_group("version=NUMBER", "the version to export (the newest)")
    add("--push", metavar="OWNER/NAME", help="upload it to this repository of the Hugging Face hub")
    add("--private", action="store_true", help="a new repository is private")
    add("--dry-run", action="store_true", help="only list what --push would upload")


def run_folder_and_version(words: list[str]) -> tuple[Path, Path | None, int | None]:
    """The run, the folder to write and the version. Raises UserError for anything else."""
    folders, version = folders_and_version(words, EXPORT)
    if not 1 <= len(folders) <= 2:
        raise UserError(f"{len(folders)} folders are named: {EXPORT.line}")
    return folders[0], folders[1] if len(folders) > 1 else None, version


def folders_and_version(words: list[str], command: Command) -> tuple[list[Path], int | None]:
    """The folders that the words name, and the number behind version=. Raises UserError for another
    option."""
    folders = [Path(text) for text in words if not is_option(text)]
    version = None
    for text in filter(is_option, words):
        key, _, value = text.partition("=")
        if key != "version" or not value.isdecimal():
            raise UserError(f"{text} is no option of {command.name}: {command.line}")
        version = int(value)
    return folders, version


def export_run(options: argparse.Namespace, console: Console) -> int:
    run, folder, version = run_folder_and_version(options.words)
    if not options.push and (options.private or options.dry_run):
        raise UserError("--private and --dry-run are options of --push OWNER/NAME")
    overrides = overrides_again(run, [])
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config.typed import typed

    def write(cfg: DictConfig) -> None:
        config = typed(cfg)
        from rlhf_lab.experiment.publish.export import Target, export, push

        if options.push:
            target = Target(options.push, options.private, options.dry_run)
            push(config, run, folder, version, target, console, options.make_stages)
        else:
            export(config, run, folder, version, console, options.make_stages)

    compose(write, overrides, run=run)
    return 0


EXPORT = OptionsCommand(
    "export",
    "write a run's policy with its model card, for transformers",
    "runs/RUN exported version=8",
    usage=(
        "RUN [FOLDER] [version=NUMBER] [--make-stages] [--push OWNER/NAME [--private] "
        "[--dry-run]] [--trust]"
    ),
    completes="folders",
    add_options=add_export_options,
    action=export_run,
)


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="RUN", help="the run's folder")
    parser.add_argument_group("version=NUMBER", "the version that answers (the newest)")
    add("--temperature", type=float, default=0.0, metavar="T", help="of sampling (training's)")
    add("--tokens", type=int, default=0, metavar="N", help="of an answer at most (training's)")


def typed_lines() -> Iterator[str]:
    """The lines of standard input, with a prompt on a terminal, until it ends (Ctrl-D)."""
    while True:
        if sys.stdin.isatty():
            sys.stdout.write(PROMPT)
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def chat(options: argparse.Namespace, console: Console) -> int:
    """Answer what is typed, line by line. Returns 0."""
    folders, version = folders_and_version(options.words, CHAT)
    if len(folders) != 1:
        raise UserError(f"{len(folders)} folders are named: {CHAT.line}")
    (run,) = folders
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config.typed import typed

    def answer(cfg: DictConfig) -> None:
        config = typed(cfg)
        from rlhf_lab.experiment.run.chat import talk

        how = (options.temperature, options.tokens)
        for text in talk(config, run, version, typed_lines(), console, *how):
            console.print(text)

    compose(answer, overrides_again(run, []), run=run)
    return 0


CHAT = OptionsCommand(
    "chat",
    "talk to a run's policy: a line is a prompt, an empty line begins another chat",
    "runs/RUN",
    usage="RUN [version=NUMBER] [--temperature T] [--tokens N] [--trust]",
    completes="folders",
    add_options=add_chat_options,
    action=chat,
)
