"""What the last word of a command line can become, for the scripts of `rlhf-lab completion`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from rlhf_lab.cli.command import Command, HydraCommand, OptionsCommand
from rlhf_lab.cli.completion_keys import known_keys
from rlhf_lab.experiment.named_models import GROUP
from rlhf_lab.experiment.registry import group_options
from rlhf_lab.runs.folder import MANIFEST

FLAGS = ("--help", "--version", "--cfg", "--config-dir", "--config-name", "--multirun", "-m")
CFG = ("job", "hydra", "all")
# Groups that are composed at a second node too.
SECOND = {"model@proxy": "model", "reward@judge": "reward"}
# Where a checkout has its sweeps, and where an installed package has them.
SWEEPS = Path(__file__).parents[1] / "sweeps" / "files"
# Commands whose words are folders.
OF_FOLDERS = (
    *(
        "runs",
        "watch",
        "samples",
        "timeline",
        "export",
        "plan",
        "sync",
        "report",
        "plot",
        "figures",
    ),
    *("tables", "compare", "publication-tables", "claims", "implicit-reward"),
)
SIGNS = re.compile(r"[+~]*")


def candidates(words: Sequence[str], commands: Mapping[str, Command]) -> list[str]:
    """What the last word can become, sorted. words: those after `rlhf-lab`."""
    *before, current = words or [""]
    found = first_words(commands) if not before else next_words(before, current, commands)
    return sorted({word for word in found if word.startswith(current)})


def first_words(commands: Mapping[str, Command]) -> Iterator[str]:
    yield from (*commands, "help", "--help", "--version")


def next_words(
    before: Sequence[str], current: str, commands: Mapping[str, Command]
) -> Iterator[str]:
    name, previous = before[0], before[-1]
    if name == "help":
        yield from commands
    command = commands.get(name)
    if isinstance(command, OptionsCommand):
        yield from words_of_options(command, current)
    elif isinstance(command, HydraCommand):
        yield from words_of_hydra(command, before, previous, current)


def words_of_options(command: OptionsCommand, current: str) -> Iterator[str]:
    """Flags, choices and folders of a command with options of its own."""
    if command.name == "explain":
        yield from (name.removesuffix("=") for name in names(()))
    if command.name in OF_FOLDERS:
        yield from folders(current)
    if command.name == "launch":
        yield "layout="
        yield from overrides((), current)
    for action in actions(command.parser()):
        yield from (action.option_strings if current.startswith("-") else action.choices or ())


def actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """The arguments of a parser."""
    return parser._actions


def words_of_hydra(
    command: HydraCommand, before: Sequence[str], previous: str, current: str
) -> Iterator[str]:
    """Flags, overrides, sweeps and runs."""
    if previous in ("--config-name", "-cn"):
        yield from sweeps(before)
    elif previous in ("--config-dir", "-cd"):
        yield from folders(current)
    elif previous in ("--cfg", "-c"):
        yield from CFG
    elif current.startswith("-"):
        yield from FLAGS
    else:
        if command.of_run is not None:
            yield from folders(current)
        yield from overrides(before, current)


def sweeps(before: Sequence[str]) -> Iterator[str]:
    """The configs in the folder that was named, or those of the project."""
    pairs = pairwise(before)
    named = [Path(value) for flag, value in pairs if flag in ("--config-dir", "-cd")]
    for folder in named or [SWEEPS]:
        yield from (path.stem for path in folder.glob("*.yaml"))


def folders(current: str) -> Iterator[str]:
    """Folders that a path can become; those that are no runs with a slash, to go on."""
    start, slash, _ = current.rpartition("/")
    above = Path(start + slash or ".")
    for path in above.iterdir() if above.is_dir() else ():
        if path.is_dir() and not path.name.startswith("."):
            yield f"{start}{slash}{path.name}{'' if (path / MANIFEST).is_file() else '/'}"


def overrides(before: Sequence[str], current: str) -> Iterator[str]:
    """Overrides: names first, and after = the options of a group or the values of a key."""
    signs = SIGNS.match(current)
    sign = signs[0] if signs else ""
    key, equals, value = current.removeprefix(sign).partition("=")
    if not equals:
        every = (name for name in names(before) if name != key)
        yield from (f"{sign}{name}" for name in every if "." in key or not is_key(name))
        return
    # Of a sweep over several values, the last one is completed.
    several, comma, last = value.rpartition(",")
    for one in (*values_of(key), *model_folders(key, last)):
        yield f"{sign}{key}={several}{comma}{one}"


def model_folders(key: str, value: str) -> Iterator[str]:
    """Folders that a model may be in, once a path is begun."""
    if SECOND.get(key, key) == GROUP and "/" in value:
        yield from folders(value)


def is_key(name: str) -> bool:
    return "." in name.removesuffix(".")


def names(before: Sequence[str]) -> Iterator[str]:
    """Groups with =, nodes with a dot, and keys with =, of the options that were chosen."""
    chosen = dict(word.split("=", 1) for word in before if "=" in word)
    every = known_keys()
    of_option: dict[str, set[str]] = {}
    for key in every:
        of_option.setdefault(key.name.partition(".")[0], set()).add(key.option)
    yield from (f"{group}=" for group in (*group_options(), *SECOND))
    for key in every:
        node, dot, _ = key.name.partition(".")
        option = chosen.get(node, "")
        if option in of_option[node] and key.option not in ("", option):
            continue
        yield f"{key.name}="
        if dot:
            yield f"{node}."


def values_of(name: str) -> Iterator[str]:
    """Options of a group, or values of a key that is a choice."""
    yield from group_options().get(SECOND.get(name, name), ())
    for key in known_keys():
        if key.name == name:
            yield from key.values
