"""Every key of the config: its type, default, range or choices, description and source."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_type_hints

import yaml

from rlhf_lab.experiment.config.config import NODES, Config
from rlhf_lab.experiment.config.groups import CLASSES, option_files
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.config.registry import plain_options
from rlhf_lab.experiment.config.schema import has_default
from rlhf_lab.types.limits import column_of

# Nodes whose options are those of a group of another name.
MOUNTS = {"proxy": "model", "judge": "reward"}
# Files of these groups set keys anywhere.
OVERLAYS = ("debug", "experiment", "launcher", "stages")
GLOBAL = "# @package _global_"


@dataclass(frozen=True)
class Key:
    """A key of the config as `part`, a class of `group`, declares it.

    allowed: its range or choices. option: the option of the group that it belongs to, "" where the
    group has one class.
    """

    name: str
    kind: str
    default: str
    allowed: str
    about: str
    source: str
    part: type
    group: str = ""
    option: str = ""


@dataclass(frozen=True)
class Option:
    """An option of a group: what it is for, and the values and options of other groups that its
    file sets."""

    name: str
    about: str
    values: Mapping[str, Any]
    choices: tuple[str, ...] = ()


def key_of(part: type, column: dataclasses.Field[Any], node: str, **where: str) -> Key:
    """One field of a part that is mounted at a node."""
    kind = get_type_hints(part)[column.name]
    is_choice = isinstance(kind, type) and issubclass(kind, Enum)
    own = column_of(part, column.name)
    return Key(
        f"{node}.{column.name}" if node else column.name,
        "choice" if is_choice else str(getattr(kind, "__name__", kind)),
        default_text(column),
        ", ".join(str(one.value) for one in kind) if is_choice else str(own.range or ""),
        own.about,
        own.source,
        part,
        **where,
    )


def default_text(column: dataclasses.Field[Any]) -> str:
    """A default as it can be passed."""
    if not has_default(column):
        return "required"
    factory = column.default_factory
    value = column.default if factory is dataclasses.MISSING else factory()
    return repr(getattr(value, "value", value))


@functools.cache
def sections() -> dict[str, tuple[type, tuple[Key, ...]]]:
    """Every class of the config with its keys, by `group=name`, group or node."""
    found: dict[str, tuple[type, tuple[Key, ...]]] = {}
    for group in CLASSES:
        parts = classes(group)
        for name, part in parts.items():
            where = {"group": group, "option": name if len(parts) > 1 else ""}
            title = f"{group}={name}" if len(parts) > 1 else group
            columns = dataclasses.fields(part)
            found[title] = part, tuple(key_of(part, c, group, **where) for c in columns)
    hints = get_type_hints(Config)
    for node in NODES:
        part = hints[node]
        found[node] = part, tuple(key_of(part, c, node) for c in dataclasses.fields(part))
    return found


def single_keys() -> list[Key]:
    """The keys that stand outside of all nodes."""
    return [
        key_of(Config, column, "") for column in dataclasses.fields(Config) if has_default(column)
    ]


def all_keys() -> Iterator[Key]:
    """Every key, once for each class that declares it."""
    yield from single_keys()
    for _, keys in sections().values():
        yield from keys


def summary(part: type) -> str:
    """What a class is, in one paragraph."""
    return " ".join((inspect.getdoc(part) or "").split())


def options_of(group: str) -> list[Option]:
    """The options of a group in the order of their names."""
    parts = classes(group) if group in CLASSES else {}
    plain = [Option(name, summary(parts[of]), {}) for name, of in plain_options(group).items()]
    files = option_files(group)
    return sorted([*plain, *(from_file(name, files[name]) for name in files)], key=lambda o: o.name)


def from_file(name: str, path: Any) -> Option:
    """An option with a file: its comment says what it is for."""
    text = path.read_text(encoding="utf-8")
    comments = [line[2:] for line in text.splitlines() if line.startswith("# ") and line != GLOBAL]
    found = yaml.safe_load(text)
    values = {k: v for k, v in found.items() if k not in ("defaults", "name")}
    others = (entry for entry in found.get("defaults", ()) if isinstance(entry, Mapping))
    pairs = (pair for entry in others for pair in entry.items())
    choices = tuple(f"{key.rpartition('/')[2]}={value}" for key, value in pairs)
    return Option(name, " ".join(comments).removesuffix(":"), values, choices)


def set_by(key: Key) -> list[str]:
    """The options whose files set a key, with the value: `mode=async: 1`."""
    node, _, name = key.name.partition(".")
    found = []
    for group in filter(None, (key.group, *OVERLAYS)):
        for option in options_of(group):
            place = option.values if group == key.group else option.values.get(node, {})
            if isinstance(place, Mapping) and name in place:
                found.append(f"{group}={option.name} ({place[name]})")
    return found
