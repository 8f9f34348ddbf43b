"""YAML files of options: read with the marks and line ends that editors write, or refused in one
line with the file, the line and the remedy, before Hydra composes them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.plugins.config_source import ConfigSource
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.config.config import NODES
from rlhf_lab.experiment.config.groups import CLASSES
from rlhf_lab.experiment.config.keys import GLOBAL, MOUNTS, OVERLAYS
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.runs.reading import Unreadable, unreadable
from rlhf_lab.types.limits import columns

# Below this node of a sweep's file are whole keys.
PARAMETERS = "hydra.sweeper.params"
# Characters of a file that Hydra looks for its package in.
HEADER = 512
# What YAML reads as a truth value, and the names that choices may have for it.
WORDS = re.compile(r"[:\[,]\s*(on|off|yes|no)\b", re.IGNORECASE)
NAMES = {True: ("on", "yes"), False: ("off", "no")}
REMEDIES = {
    "\\t": "indent with spaces",
    "duplicate key": "keep one of them",
    "constructor for the tag": "write plain values",
    "another document": "put each document into a separate file",
}
# The file whose defaults list chose an option, by group and option: Hydra's errors leave it out.
CHOSEN_IN: dict[tuple[str, str], Path] = {}
CORRECT = "correct the indent, colons, brackets or quotes there"


def options_in(path: Path) -> tuple[DictConfig, dict[str, str | None]]:
    """What a file of options holds, and its header, as Hydra's `# @package` lines set it."""
    text = text_of(path)
    try:
        header = ConfigSource._get_header_dict(text[:HEADER])
    except ValueError as error:
        raise Unreadable(path, f"{error}: write {GLOBAL} and nothing behind it") from error
    try:
        found = OmegaConf.load(io.StringIO(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}" if mark else ""
        reason = error.problem or str(error)
        remedy = next((one for part, one in REMEDIES.items() if part in reason), CORRECT)
        raise Unreadable(path, f"{reason}: {remedy}", place) from error
    except yaml.reader.ReaderError as error:
        place = f"line {line_of(text, error.position)}"
        raise Unreadable(path, f"the character {error.character!r}: delete it", place) from error
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unreadable(path, f"{reason}: correct the value") from error
    if not isinstance(found, DictConfig) or (len(found) == 1 and is_text(found)):
        raise Unreadable(path, "it holds no keys with values: write `KEY: VALUE` lines")
    return found, header


def is_text(found: DictConfig) -> bool:
    """Whether OmegaConf read a file that is one word, which it takes for a key without value."""
    ((key, value),) = found.items()
    return value is None and ("=" in str(key) or " " in str(key))


def text_of(path: Path) -> str:
    """The text of a file in UTF-8, without the mark that some editors begin it with."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"line {data[: error.start].count(bytes([10])) + 1}"
        reason = f"byte {data[error.start]:#x} is no UTF-8: save the file as UTF-8"
        raise Unreadable(path, reason, place) from error
    if "\0" in text[:HEADER:2] or "\0" in text[1:HEADER:2]:
        line = line_of(text, text.index("\0"))
        raise Unreadable(path, "it holds NUL characters: save it as UTF-8", f"line {line}")
    return text


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def require_form(path: Path, group: str, package: str | None, found: Mapping[str, Any]) -> None:
    """Refuse a file whose keys, package or defaults list Hydra would misread. group: of its option;
    '' for a primary config. found: plain values."""
    if group in OVERLAYS and package is None:
        raise Unreadable(
            path, f"{GLOBAL} is missing: write it as the first line of a file in {group}/", "line 1"
        )
    entries = found.get("defaults", [])
    if not isinstance(entries, list):
        raise Unreadable(path, "defaults is no list: write `- GROUP: OPTION` lines below it")
    for entry in entries:
        pairs = list(entry.items()) if isinstance(entry, dict) else [(entry, None)]
        key, value = pairs[0] if len(pairs) == 1 else (None, None)
        if not isinstance(key, str) or not isinstance(value, str | list | None):
            raise Unreadable(
                path, f"defaults has the entry {entry}: write one `- GROUP: OPTION` in a line"
            )
        CHOSEN_IN[key.rpartition("/")[2], str(value)] = path
        is_choice = isinstance(entry, dict) and group in OVERLAYS
        if is_choice and not key.startswith(("override ", "optional ", "/")):
            raise Unreadable(
                path, f"defaults has {key}: {value}: write `override /GROUP: OPTION` in {group}/"
            )
    if group == "" and not [one for one in entries if isinstance(one, str) and one != "_self_"]:
        raise Unreadable(path, "defaults has no `- config`: write it as the first entry")
    if group in ("", *OVERLAYS):
        require_nodes(path, found)


def require_nodes(path: Path, found: Mapping[str, Any]) -> None:
    """Refuse single values in the place of sets of options, in a file whose keys are whole ones."""
    for key, value in found.items():
        is_node = key in (*NODES, *CLASSES, *MOUNTS) and not isinstance(value, str | dict)
        if is_node or (key in CLASSES and isinstance(value, str) and "${" not in value):
            raise Unreadable(
                path,
                f"{key}: {value} is no set of options: choose an option in defaults "
                f"(`- override /{key}: OPTION`), or write keys below {key}",
            )
    node: Any = found
    for name in PARAMETERS.split("."):
        node = node.get(name, {})
        if not isinstance(node, dict) and (node or name != "params"):
            raise Unreadable(path, f"{name}: {node} is no set of options: write keys below {name}")
    for key, value in (node or {}).items():
        if value is None or isinstance(value, dict):
            raise Unreadable(
                path, f"{PARAMETERS} has {key}: {value}: write its values with commas: {key}: A,B"
            )


def with_choices(found: dict[str, Any], node: str) -> dict[str, Any]:
    """The values at a node of the config, with the choices of that name where YAML reads off and on
    as truth values."""
    node = "" if node == PARAMETERS else node
    return {
        str(key): with_choices(value, f"{node}.{key}".lstrip("."))
        if isinstance(value, dict)
        else choice_of(f"{node}.{key}".lstrip("."), value)
        for key, value in found.items()
    }


def choice_of(key: str, value: Any) -> Any:
    """A value of a key, a truth value as the choice of its name, if the key has one."""
    node, _, name = key.rpartition(".")
    group = MOUNTS.get(node, node)
    if not isinstance(value, bool) or group not in CLASSES:
        return value
    for part in classes(group).values():
        for column in columns(part):
            if column.name == name and column.choices:
                names = [one for one in NAMES[value] if one in column.choices.__members__]
                return next(iter(names), value)
    return value
