"""Refusals of overrides that name nothing: what was probably meant, in one line.

Hydra's own errors list every option and its search path; a person needs the word that they meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException

from rlhf_lab.experiment.config import keys, schema
from rlhf_lab.experiment.config.config import NODES
from rlhf_lab.experiment.config.other_names import answer_to, option_for
from rlhf_lab.experiment.config.own_files import CHOSEN_IN
from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.types.errors import UserError

MOST_NAMES = 4
# How much less than the nearest name another one may resemble the word.
MARGIN = 0.1
NO_KEY = re.compile(r"Could not override '([^']+)'|'?([\w@./]+)'? does not exist")
NO_NAME = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?|true|false|null", re.IGNORECASE)
IN_FILE = re.compile(r"In '(?!config')[^']+': ")
# What takes the place of Hydra's keys for folders.
OWN_FOLDERS = {
    "hydra.run.dir": "pass output.dir=FOLDER for the run's folder, or output.root=FOLDER above it",
    "hydra.sweep.subdir": "jobs are named after their values; pass output.dir=FOLDER with ${KEY}",
    "hydra.output_subdir": "the run's folder has its config.yaml; pass output.dir=FOLDER",
    "hydra.job.chdir": "a run stays in the folder that it was started in; pass output.dir=FOLDER",
}
BAD_VALUE = re.compile(r"Error merging override (.+)")


def did_you_mean(found: Sequence[str]) -> str:
    """A question that names these, or "" without any."""
    *most, last = found or [""]
    return f"did you mean {', '.join(most)}{' or ' if most else ''}{last}?" if found else ""


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """The names that a word was probably meant to be, the nearest first: those with letters that
    changed places, then the others that are about as near as the nearest."""
    found = difflib.get_close_matches(name, list(names), n=MOST_NAMES)
    found.sort(key=lambda one: sorted(one) != sorted(name))
    far = {one: 1 - difflib.SequenceMatcher(None, one, name).ratio() for one in found}
    return [one for one in found if far[one] <= far[found[0]] + MARGIN]


def near_keys(name: str) -> list[str]:
    """The keys, groups and nodes that a name was probably meant to be, the nearest first."""
    node, dot, last = name.rpartition(".")
    names = config_names()
    same = [one for one in names if one.rpartition(".")[2] == last]
    ends = {
        one.rpartition(".")[2]: one
        for one in reversed(names)
        if not dot or one.startswith(f"{node}.")
    }
    close = [ends[end] for end in near_names(last, ends)] or near_names(name, names)
    return list(dict.fromkeys(same or close))[:MOST_NAMES]


def remedy(name: str) -> str:
    """What to write in place of a name that is no key: what is called so elsewhere, else what it
    resembles; '' if nothing is known."""
    return answer_to(name) or did_you_mean(near_keys(name))


def config_names() -> list[str]:
    """Every key, group and node, the second nodes of groups included."""
    found = [key.name for key in keys.all_keys()]
    for mount, group in keys.MOUNTS.items():
        inside = [name for name in found if name.startswith(f"{group}.")]
        found += [f"{mount}{name.removeprefix(group)}" for name in inside]
        found += [f"{group}@{mount}", mount]
    return list(dict.fromkeys([*found, *group_options(), *NODES]))


def no_key(name: str) -> str:
    """The refusal of a name that is no key and no group, or a key of options that are not
    chosen."""
    having = [key for key in keys.all_keys() if key.name == name and key.option]
    if having:
        group, options = having[0].group, list(dict.fromkeys(key.option for key in having))
        return (
            f"{name} is a key of {group}={' or '.join(options)} alone: pass one of these too, or "
            f"++{name}=... in a sweep over {group}"
        )
    return f"{name} is no key of the config: {remedy(name) or 'docs/config.md lists all keys'}"


def no_flags(complaint: str) -> str:
    """The refusal of flags that no command has, by the complaint of their parser."""
    names = re.findall(r"--([\w.-]+)", complaint)
    if known := [f"{name}: {answer}" for name in names if (answer := answer_to(name))]:
        return f"--{'; '.join(known)} Write key=value, without dashes"
    return f"{complaint}: write key=value, group=option, or one of the flags of --help"


def require_own_folders(overrides: Sequence[str]) -> None:
    """Refuse keys of Hydra for folders that runs and sweeps do not have."""
    for text in overrides:
        if answer := OWN_FOLDERS.get(text.lstrip("+").partition("=")[0]):
            raise UserError(f"{text} has no effect here: {answer}")


def no_option(group: str, name: str, options: Iterable[str]) -> str:
    """The refusal of a name that is no option of a group."""
    known = sorted(options)
    found = [one for one in option_for(group.partition("@")[0], name) if one in known]
    question = did_you_mean(found or near_names(name, known))
    others = schema.REMEDY if group.partition("@")[0] == schema.GROUP else ""
    return " ".join(
        part
        for part in (
            f"{group}={name} is no option of {group}:",
            question,
            f"One of {', '.join(known)}{others}" if known else f"{group} has no options here",
        )
        if part
    )


def require_names(overrides: Sequence[str]) -> None:
    """Refuse numbers and null for groups, which Hydra answers with a traceback, and names: an
    option has its own, by which lists and tables of runs call it."""
    groups = group_options()
    for text in overrides:
        key, sign, value = text.lstrip("+").partition("=")
        part, _, last = key.rpartition(".")
        is_name = last == "name" and sign and part.partition(".")[0] in {*groups, *keys.MOUNTS}
        # Empty is the last part of model.path.
        if is_name and f"{part}={value}" not in overrides and value not in ("", "''", '""'):
            raise UserError(
                f"{text}: the name of an option is its own; choose the option, {part}=NAME"
            )
        if (group := key.partition("@")[0]) in groups and NO_NAME.fullmatch(value):
            raise UserError(no_option(key, value, groups[group]))


def require_overlays(runtime: Any, loader: Any) -> None:
    """Refuse options of the groups that set keys anywhere: they are optional, so Hydra leaves out
    one that is not there.

    runtime: node of the composed config; it lists the folders of a hydra.searchpath in a file too,
    which the loader does not know.
    """
    folders = [Path(one.path) for one in runtime.config_sources if one.schema == "file"]
    for group in keys.OVERLAYS:
        if (name := runtime.choices.get(group)) is None:
            continue
        known = {
            *loader.get_group_options(group, results_filter=ObjectType.CONFIG),
            *(path.stem for folder in folders for path in (folder / group).glob("*.yaml")),
        }
        if name not in known:
            raise UserError(no_option(group, name, known))


def explained(error: BaseException) -> str | None:
    """An error of Hydra about overrides, or in the file that it names, in one line with a remedy;
    None for any other."""
    place = IN_FILE.match(str(error))
    known = explained_reason(error)
    is_named = known is None or known.startswith("/")  # the file
    return f"{place[0]}{known}" if place and not is_named else known


def explained_reason(error: BaseException) -> str | None:
    """The same without the file."""
    if isinstance(error, OverrideParseException):
        return parse_error(error.override)
    if isinstance(error, MissingConfigException):
        return missing_file(error)
    if not isinstance(error, HydraException):
        return None
    if found := BAD_VALUE.match(str(error)):
        return bad_value(found[1].removesuffix(":").strip(), str(error.__cause__))
    if found := NO_KEY.search(str(error)):
        return no_key(found[1] or found[2])
    return None


def bad_value(override: str, cause: str) -> str:
    """The refusal of a value of another type, with its place in a list."""
    place = re.search(r"full_key: (\S+)", cause)
    key = override.lstrip("+").partition("=")[0]
    within = f"{place[1]}: " if place and place[1] != key else ""
    return f"{override}: {within}{cause.splitlines()[0]}"


def parse_error(override: str) -> str:
    """The refusal of what is no override."""
    key, sign, value = override.partition("=")
    if not sign:
        return f"{override} is no override: write key=value or group=option"
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"{override} cannot be read: braces, brackets, commas, colons, quotes and leading spaces "
        f"have a meaning in values; quote the value, within the quotes of the shell: "
        f"'{key}=\"{text}\"'"
    )


def missing_file(error: MissingConfigException) -> str:
    """The refusal of an option, or of a primary config such as a sweep's, that is in no folder."""
    path = error.missing_cfg_file or ""
    group, _, name = path.rpartition("/")
    if path.startswith(f"{schema.GROUP}/"):
        group, _, name = path.partition("/")
    if group and error.options:
        place = CHOSEN_IN.get((group, name))
        refusal = no_option(group, name, error.options)
        return f"{place}: defaults: {refusal}" if place else refusal
    paths = dict.fromkeys(re.findall(r"path=file://(\S+)", str(error)))
    folders = [Path(text, group) for text in paths]
    found = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    places = ", ".join(map(str, folders))
    question = did_you_mean(near_names(name, found)) or "pass --config-dir FOLDER"
    return f"no config named {error.missing_cfg_file} in {places}: {question}"
