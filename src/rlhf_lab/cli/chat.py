"""`rlhf-lab chat`: talk to a version of a run's policy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlhf_lab.cli.arguments import overrides_again
from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.cli.export import folders_and_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

PROMPT = "> "


def add_options(parser: argparse.ArgumentParser) -> None:
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
    folders, version = folders_and_version(options.words, COMMAND)
    if len(folders) != 1:
        raise UserError(f"{len(folders)} folders are named: {COMMAND.line}")
    (run,) = folders
    from rlhf_lab.cli.compose import compose
    from rlhf_lab.experiment.config import typed
    from rlhf_lab.experiment.talk import talk

    def answer(cfg: DictConfig) -> None:
        how = (options.temperature, options.tokens)
        for text in talk(typed(cfg), run, version, typed_lines(), console, *how):
            console.print(text)

    compose(answer, overrides_again(run, []))
    return 0


COMMAND = OptionsCommand(
    "chat",
    "talk to a run's policy: a line is a prompt, an empty line begins another chat",
    "runs/RUN",
    usage="RUN [version=NUMBER] [--temperature T] [--tokens N]",
    add_options=add_options,
    action=chat,
)
