"""The grid of a sweep, from overrides in Hydra's grammar: `seed=1,2,3`, `run.passes=range(1,4)`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

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
    own = [f"{key}={value}" for key, value in params.items()]
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
    """The texts of a swept key's values."""
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
    """The folder of a point, `algo-grpo/seed-1`: a level for each swept key."""
    levels = [
        f"{key}-{value}" for key, value in zip(short_keys(list(point)), point.values(), strict=True)
    ]
    for level in levels:
        if len(level.encode()) > LONGEST_LEVEL:
            raise UserError(
                f"{level[:60]}... is too long for the name of a folder: sweep over overlays with "
                "short names instead (conf/experiment), or set output.dir"
            )
    return "/".join(level.translate(UNSAFE) for level in levels) or "job"


def short_keys(keys: Sequence[str]) -> list[str]:
    """The last part of each key, or the whole key where two have the same last part."""
    plain = [key.lstrip("+~") for key in keys]
    last = [key.split("@")[-1].rpartition(".")[2] for key in plain]
    return [word if last.count(word) == 1 else key for word, key in zip(last, plain, strict=True)]
