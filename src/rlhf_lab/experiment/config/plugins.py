"""Plugins: modules outside of this package that list parts of their own, by group and name.

A plugin has one table. Its values are names, so that listing the parts imports none of them:

    PARTS = {"algo": {"mine": "my_module:MyAlgorithm"}}

An installed package names its plugin by an entry point of the group `rlhf_lab.plugins`; any other
module that can be imported, one in the working folder too, is named by the key `plugins`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rlhf_lab.runs.foreign import ForeignFailure, call, see_working_folder
from rlhf_lab.runs.manifest import PluginFacts
from rlhf_lab.runs.trust import require_trust
from rlhf_lab.types.errors import UserError

ENTRY_POINTS = "rlhf_lab.plugins"
# Groups whose options a plugin may add to.
GROUPS = ("algo", "correction", "task", "reward", "generator", "engine", "tracker")
EXAMPLE = 'PARTS = {"algo": {"mine": "my_module:MyAlgorithm"}}'
NAME = re.compile(r"[A-Za-z][\w.-]*")
TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
OVERRIDE = re.compile(r"\+{0,2}plugins=")
# The parts of the active plugins: `MODULE:CLASS` by group and name, and the plugins' modules.
_parts: dict[str, dict[str, str]] = {}
_modules: list[str] = []


def own_parts(group: str) -> Mapping[str, str]:
    """The parts that active plugins add to a group: `MODULE:CLASS` by name."""
    return _parts.get(group, {})


def activate_for(overrides: Sequence[str]) -> None:
    """Activate the installed plugins and those that overrides name. Raises UserError."""
    activate_installed()
    if modules := modules_in(overrides):
        require_trust(f"plugins={modules}")
        activate(modules)


@functools.cache
def activate_installed() -> None:
    """Activate the plugins of installed packages. Raises UserError for one that is wrong."""
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.value):
        owner = point.dist.name if point.dist else point.name
        activate([point.value], f"the installed plugin of {owner}: ")


def active() -> tuple[str, ...]:
    """The modules of the active plugins."""
    return tuple(_modules)


def activate(modules: Sequence[str], place: str = "") -> None:
    """Add the parts of plugins to their groups. place: who names them. Raises UserError."""
    for module in modules:
        if module not in _modules:
            add_parts(module, f"{place}plugins=[{module}]")
            _modules.append(module)


def modules_in(overrides: Sequence[str]) -> list[str]:
    """The modules that overrides of the key `plugins` name."""
    return [
        module
        for text in overrides
        if OVERRIDE.match(text)
        for module in listed(override_value(text), text)
    ]


def override_value(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text).value()


def listed(value: Any, text: str) -> list[str]:
    """The modules in a value of the key `plugins`. Raises UserError unless it is a list of them."""
    if isinstance(value, list) and all(is_dotted(one) for one in value):
        return value
    raise UserError(f"{text}: pass a list of modules, as in plugins=[my_module]")


def is_dotted(value: object) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))


def imported(module: str, place: str) -> Any:
    """A module of somebody else's. Raises UserError with its own error."""
    see_working_folder()
    try:
        return call(module, lambda: importlib.import_module(module))
    except ForeignFailure as failure:
        raise UserError(
            f"{place}: the module {module} could not be imported ({failure}): install it, or stand "
            f"in its folder (this is {os.getcwd()})"
        ) from failure


def add_parts(module: str, place: str) -> None:
    """Add what one plugin lists. Nothing is added if anything in it is wrong."""
    found = getattr(imported(module, place), "PARTS", None)
    if not isinstance(found, Mapping) or not found:
        raise UserError(f"{place}: {module} has no table PARTS: write {EXAMPLE} in it")
    every = [part for group, parts in found.items() for part in rows(group, parts, place)]
    for group, name, target in every:
        require_free_name(group, name, target, place)
    for group, name, target in every:
        _parts.setdefault(group, {})[name] = target


def rows(group: object, parts: object, place: str) -> list[tuple[str, str, str]]:
    """The parts of one group, checked by their form."""
    if group not in GROUPS:
        raise UserError(f"{place}: PARTS[{group!r}] is no group: choose {', '.join(GROUPS)}")
    if not isinstance(parts, Mapping):
        raise UserError(f"{place}: PARTS[{group!r}] is no table of names: write {EXAMPLE}")
    for name, target in parts.items():
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise UserError(f"{place}: PARTS[{group!r}] has the name {name!r}: use letters, digits")
        if not (isinstance(target, str) and TARGET.fullmatch(target)):
            raise UserError(
                f"{place}: {group}={name} leads to {target!r}: write 'MODULE:CLASS', as in "
                f"{EXAMPLE}"
            )
    return [(str(group), name, target) for name, target in parts.items()]


def require_free_name(group: str, name: str, target: str, place: str) -> None:
    """Refuse a name that another option of the group has."""
    from rlhf_lab.experiment.config.groups import CLASSES, option_files

    other = own_parts(group).get(name)
    if name in CLASSES[group] or name in option_files(group) or name in ("schema", "default"):
        other = "rlhf_lab's own"
    if other not in (None, target):
        raise UserError(f"{place}: {group}={name} is taken ({other}): choose another name in PARTS")


def require_plugins(folder: Path, recorded: Iterable[PluginFacts]) -> None:
    """Refuse to work with a run whose parts are not here. folder: the run's."""
    for facts in recorded:
        see_working_folder()
        module = facts["module"].partition(".")[0]  # to find one within a package imports that
        if module not in sys.modules and not importlib.util.find_spec(module):
            number = f" {facts['version']}" if facts["version"] else ""
            raise UserError(
                f"{folder} was made with {', '.join(facts['parts'])} of the plugin "
                f"{facts['module']}{number}, which is not here: install it, or stand in the folder "
                "that holds it"
            )
