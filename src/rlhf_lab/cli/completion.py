"""`rlhf-lab completion SHELL`: the script by which a shell completes commands, keys and options,
and what the last word of a command line can become.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import rlhf_lab
from rlhf_lab.cli.command import Command, HydraCommand, OptionsCommand
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.experiment.config.schema import GROUP
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.trackers.console import Console

BOOLEANS = ("true", "false")
FLAGS = ("--help", "--version", "--cfg", "--config-dir", "--config-name", "--multirun", "-m")
CFG = ("job", "hydra", "all")
# Groups that are composed at a second node too.
SECOND = {"model@proxy": "model", "reward@judge": "reward"}
SIGNS = re.compile(r"[+~]*")
# Each runs `rlhf-lab __complete WORD ...`, which prints completions of the last word.
BASH = r"""
_rlhf_lab() {
    local line="${COMP_LINE:0:COMP_POINT}" one current before=""
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    # Of bash 3.2, which macOS has.
    current="${words[${#words[@]}-1]}"
    COMPREPLY=()
    while IFS= read -r one; do
        COMPREPLY+=("$one")
    done < <(rlhf-lab __complete "${words[@]:1}" 2> /dev/null)
    # Bash replaces only what follows the last of these characters.
    [[ "$COMP_WORDBREAKS" == *"="* ]] && before="${current%"${current##*[=:@]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
    for one in "${COMPREPLY[@]}"; do
        [[ "$one" == *[=./] ]] && compopt -o nospace 2> /dev/null
    done
    return 0
}
complete -F _rlhf_lab rlhf-lab
"""
ZSH = r"""
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_rlhf_lab() {
    local one
    local -a open whole
    for one in "${(@f)$(rlhf-lab __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
        [[ -z "$one" ]] && continue
        if [[ "$one" == *[=./] ]]; then open+=("$one"); else whole+=("$one"); fi
    done
    compadd -Q -S '' -a open
    compadd -Q -a whole
}
compdef _rlhf_lab rlhf-lab
"""
FISH = r"""
function __rlhf_lab
    set -l words (commandline -opc)
    set -e words[1]
    rlhf-lab __complete $words (commandline -ct) 2> /dev/null
end
complete -c rlhf-lab -f -a '(__rlhf_lab)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@dataclass(frozen=True)
class KeyChoices:
    """A key, the option of its group that has it ("": every one), and its values where they are a
    choice."""

    name: str
    option: str
    values: tuple[str, ...]


def known_keys() -> list[KeyChoices]:
    """Every key, from the user's cache where that is of these sources."""
    path = cache_file()
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        rows = list(rows_of_schema())
        # A home that cannot be written to only makes the next Tab slower.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(rows), encoding="utf-8")
            draft.replace(path)
    return [KeyChoices(name, option, tuple(values)) for name, option, values in rows]


def cache_file() -> Path:
    """Named after the sizes and times of the sources, which a new version or an edit changes."""
    package = Path(rlhf_lab.__file__).parent
    state = [
        (str(path), found.st_size, found.st_mtime_ns)
        for path in sorted(package.rglob("*.py"))
        for found in [path.stat()]
    ]
    digest = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rlhf_lab" / f"keys-{digest}.json"


def rows_of_schema() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    from rlhf_lab.experiment.config import keys

    for key in keys.all_keys():
        values: tuple[str, ...] = ()
        if key.kind == "choice":
            values = tuple(key.allowed.split(", "))
        elif key.kind == "bool":
            values = BOOLEANS
        yield key.name, key.option, values
        for mount, group in keys.MOUNTS.items():
            if key.group == group:
                yield mount + key.name.removeprefix(group), key.option, values


# Where a checkout has its sweeps, and where an installed package has them.
SWEEPS = Path(__file__).parents[1] / "sweeps" / "files"


def candidates(words: Sequence[str], commands: Mapping[str, Command]) -> list[str]:
    """What the last word can become, sorted. words: those after `rlhf-lab`."""
    *before, current = words or [""]
    found: Iterable[str] = (*commands, "help", "--help", "--version")
    if before:
        command = commands.get(before[0])
        found = commands if before[0] == "help" else ()
        if isinstance(command, OptionsCommand):
            found = words_of_options(command, current)
        elif isinstance(command, HydraCommand):
            found = words_of_hydra(command, before, current)
    return sorted({word for word in found if word.startswith(current)})


def words_of_options(command: OptionsCommand, current: str) -> Iterator[str]:
    """Flags and choices of a command with a parser, and folders, keys or overrides."""
    if command.completes == "keys":
        yield from (name.removesuffix("=") for name in names(()))
    elif command.completes == "folders":
        yield from folders(current)
    elif command.completes == "layout":
        yield "layout="
        yield from overrides((), current)
    for action in command.parser()._actions:
        yield from (action.option_strings if current.startswith("-") else action.choices or ())


def words_of_hydra(command: HydraCommand, before: Sequence[str], current: str) -> Iterator[str]:
    previous = before[-1]
    if previous in ("--config-name", "-cn"):
        # The configs in the folder that was named, or those of the project.
        pairs = pairwise(before)
        named = [Path(value) for flag, value in pairs if flag in ("--config-dir", "-cd")]
        yield from (path.stem for folder in named or [SWEEPS] for path in folder.glob("*.yaml"))
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
        for name in names(before):
            # Keys below a node come once the node is written.
            if name != key and ("." in key or "." not in name.removesuffix(".")):
                yield f"{sign}{name}"
        return
    # Of a sweep over several values, the last one is completed.
    several, comma, last = value.rpartition(",")
    group = SECOND.get(key, key)
    found = list(group_options().get(group, ()))
    found += [text for one in known_keys() if one.name == key for text in one.values]
    if group == GROUP and "/" in last:
        found += folders(last)
    for one in found:
        yield f"{sign}{key}={several}{comma}{one}"


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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=sorted(SCRIPTS), help="the shell that reads the script")


def show(options: argparse.Namespace, console: Console) -> int:
    sys.stdout.write(SCRIPTS[options.shell].lstrip("\n"))
    return 0


COMPLETION = OptionsCommand(
    "completion",
    "a script for Tab in bash, zsh or fish: source <(rlhf-lab completion bash)",
    "bash",
    usage="{bash,fish,zsh}",
    add_options=add_options,
    action=show,
)
