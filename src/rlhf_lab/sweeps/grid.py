"""The grid of a sweep, from overrides in Hydra's grammar: `seed=1,2,3`, `run.passes=range(1,4)`.

Refused are overrides of a sweep's file that ask another question than they seem to: those that undo
what a swept choice sets, and those that make the grid larger.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from rlhf_lab.experiment.config.registry import group_options
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.override_text import plain_override
from rlhf_lab.types.errors import UserError

SEED = "seed"
# What conditions are repeated over, outermost first.
SEEDS = ("stage_seed", SEED)
# Characters that file systems, shells or overrides interpret.
UNSAFE = str.maketrans({**dict.fromkeys("/\\=,:@*?", "_"), **dict.fromkeys(" '\"\n[]{}()$", None)})
# A file name has 255 bytes at most, and logs add a suffix.
LONGEST_LEVEL = 200


@dataclass(frozen=True)
class Grid:
    """fixed: overrides that all jobs share. swept: the values of each swept key, as texts of
    overrides."""

    fixed: tuple[str, ...]
    swept: Mapping[str, tuple[str, ...]]

    def points(self) -> Iterator[dict[str, str]]:
        """Every combination: all conditions of a seed before the next seed, so that an unfinished
        sweep can be compared in pairs. Seeds are the last keys."""
        seeds = [key for key in SEEDS if key in self.swept]
        for own in itertools.product(*(self.swept[key] for key in seeds)):
            for values in itertools.product(*self.conditions.values()):
                yield dict(zip((*self.conditions, *seeds), (*values, *own), strict=True))

    @property
    def conditions(self) -> dict[str, tuple[str, ...]]:
        """The swept keys and their values without the seeds."""
        return {key: values for key, values in self.swept.items() if key not in SEEDS}


def grid_of(params: Mapping[str, str], texts: Sequence[str], parser: OverridesParser) -> Grid:
    """The grid of a sweep's params and of overrides, which replace params of the same key. Params
    are swept keys even with a single value.

    Raises UserError for a key without values, and for a value that occurs twice.
    """
    last: dict[str, Override] = {}
    own = [plain_override(f"{key}={value}") for key, value in params.items()]
    for override in parser.parse_overrides([*own, *texts]):
        last[override.get_key_element()] = override
    fixed: list[str] = []
    swept: dict[str, tuple[str, ...]] = {}
    for key, override in last.items():
        if override.is_sweep_override():
            swept[key] = values_of(key, override)
        elif key == SEED and not override.get_value_element_as_str():
            raise UserError("seed= is empty: pass at least one seed, as in seed=1,2,3")
        elif key in params:
            swept[key] = (str(override.get_value_element_as_str()),)
        else:
            fixed.append(override.input_line or f"{key}={override.get_value_element_as_str()}")
    return Grid(tuple(fixed), swept)


def values_of(key: str, override: Override) -> tuple[str, ...]:
    if not override.is_discrete_sweep():
        raise UserError(
            f"{override.input_line} is a search space, not a list of values: pass values with "
            "commas, or search with hydra/sweeper=rlhf_lab_search"
        )
    values = tuple(override.sweep_string_iterator())
    if not values:
        raise UserError(f"{override.input_line} has no value: the grid is empty; pass at least one")
    if twice := sorted(value for value, times in Counter(values).items() if times > 1):
        raise UserError(f"{key}={','.join(values)} has {twice[0]} twice: pass every value once")
    return values


def name_of(point: Mapping[str, str]) -> str:
    """The folder of a point, `algo-grpo/seed-1`: a level for each swept key, by its last part, or
    by the whole key where two have the same last part."""
    plain = [key.lstrip("+~") for key in point]
    last = [key.split("@")[-1].rpartition(".")[2] for key in plain]
    short = [word if last.count(word) == 1 else key for word, key in zip(last, plain, strict=True)]
    levels = [f"{key}-{value}" for key, value in zip(short, point.values(), strict=True)]
    for level in levels:
        if len(level.encode()) > LONGEST_LEVEL:
            raise UserError(
                f"{level[:60]}... is too long for the name of a folder: sweep over overlays with "
                "short names instead (conf/experiment), or set output.dir"
            )
    return "/".join(level.translate(UNSAFE) for level in levels) or "job"


def check_choices(
    params: Mapping[str, str], grid: Grid, parser: OverridesParser, loader: Any
) -> None:
    """Refuse an override of a group or key by which the choices of a swept overlay differ: all jobs
    would have it, under the names of the choices."""
    own = grid_of(params, [], parser).swept
    pairs = (text.partition("=")[::2] for text in grid.fixed)
    passed = {key.lstrip("+~"): value for key, value in pairs}
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
            # What each sets at the key or below it; of a group, which option it chooses.
            below = f"{key}." if "." in key else f"{key}="
            values = {
                tuple((at, v) for at, v in sets[one].items() if at == key or at.startswith(below))
                for one in compared
            }
            if len(values) > 1:
                alike = [choice for choice, one in sets.items() if one.get(key) == value]
                raise UserError(
                    f"{key}={value} beside {swept}={','.join(chosen)}: choices of {swept} differ "
                    f"in {key}, and jobs would have another one than their names; leave it out, or "
                    f"pass {swept}={(alike or list(every))[0]}"
                )


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
