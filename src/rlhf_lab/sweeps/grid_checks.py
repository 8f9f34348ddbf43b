"""Refuse overrides of a sweep's file that ask another question than they seem to: those that undo
what a swept choice sets, and those that make the grid larger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from rlhf_lab.experiment.registry import group_options
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.grid import Grid, grid_of
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.types.errors import UserError


def check_choices(
    params: Mapping[str, str], grid: Grid, parser: OverridesParser, loader: Any
) -> None:
    """Refuse an override of a group or key by which the choices of a swept overlay differ: all jobs
    would have it, under the names of the choices."""
    own = grid_of(params, [], parser).swept
    passed = dict(key_and_value(text) for text in grid.fixed)
    passed |= {key: ",".join(v) for key, v in grid.swept.items() if key not in params}
    for swept, chosen in grid.swept.items():
        # Options of the config's own groups are made to be combined with others.
        if swept in group_options() or not loader.get_group_options(swept):
            continue
        every = dict.fromkeys((*own.get(swept, ()), *chosen))
        sets = {choice: dict(set_by(loader, swept, choice)) for choice in every}
        for key, value in passed.items():
            # The name of a choice implies its group options, even where it is the only one.
            compared = chosen if "." in key else tuple(every)
            if len({values_at(sets[choice], key) for choice in compared}) > 1:
                alike = [choice for choice, one in sets.items() if one.get(key) == value]
                raise UserError(
                    f"{key}={value} beside {swept}={','.join(chosen)}: choices of {swept} differ "
                    f"in {key}, and jobs would have another one than their names; leave it out, or "
                    f"pass {swept}={(alike or list(every))[0]}"
                )


def key_and_value(override: str) -> tuple[str, str]:
    """The key of an override without what it does to it, and its value."""
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def set_by(loader: Any, group: str, choice: str) -> Iterator[tuple[str, str]]:
    """The groups that an overlay overrides and the keys that it sets, with their values."""
    file = loader.repository.load_config(f"{group}/{choice}")
    for default in (file and file.defaults_list) or ():
        if default.is_override():
            group = str(default.group).lstrip("/")
            yield f"{group}@{default.package!s}" if default.package else group, str(default.value)
    if file:
        yield from leaves(OmegaConf.to_container(file.config), "")


def leaves(node: Any, key: str) -> Iterator[tuple[str, str]]:
    """The values of plain data by their whole keys."""
    if not isinstance(node, dict):
        yield key, str(node)
        return
    for name, value in node.items():
        yield from leaves(value, f"{key}.{name}" if key else str(name))


def values_at(one: Mapping[str, str], key: str) -> tuple[tuple[str, str], ...]:
    """What an overlay sets at a key or below it; of a group, which option is chosen."""
    below = f"{key}." if "." in key else f"{key}="
    return tuple((at, value) for at, value in one.items() if at == key or at.startswith(below))


def sizes(params: Mapping[str, str], grid: Grid, parser: OverridesParser) -> tuple[int, int]:
    """Jobs of a file's own grid, and of the grid with overrides."""
    own = grid_of(params, [], parser).swept
    before, after = (math.prod(map(len, swept.values())) for swept in (own, grid.swept))
    return before, after


def check_growth(
    params: Mapping[str, str],
    grid: Grid,
    parser: OverridesParser,
    options: SweeperOptions,
    console: Console,
) -> None:
    """Report that overrides make a file's grid larger. Raises UserError unless larger grids were
    requested, or nothing is run."""
    before, after = sizes(params, grid, parser)
    if not params or after <= before:
        return
    own = grid_of(params, [], parser).swept
    longer = [
        f"{key}={','.join(values)}"
        for key, values in grid.swept.items()
        if len(values) > len(own.get(key, ("one",)))
    ]
    text = f"the grid grew from {before} to {after} jobs by {' '.join(longer)}"
    if not (options.extend or options.dry):
        raise UserError(
            f"{text}: for a part of it pass values of {', '.join(own)} that it has; for the larger "
            "one hydra.sweeper.extend=true (make sweep ... EXTEND=1)"
        )
    console.print(text)
