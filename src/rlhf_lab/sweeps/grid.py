"""The grid that overrides ask for, in Hydra's grammar: `seed=1,2,3`, `run.passes=range(1,4)`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from rlhf_lab.types.errors import UserError

SEED = "seed"
# What file systems, shells and overrides take badly in a name.
UNFIT = str.maketrans({**dict.fromkeys("/\\=,:@*?", "_"), **dict.fromkeys(" '\"\n[]{}()$", None)})
# A file's name has 255 bytes at most, and logs add an ending.
LONGEST_LEVEL = 200


@dataclass(frozen=True)
class Grid:
    """fixed: overrides that all jobs share. swept: the values of each key that differs, as texts
    that an override takes."""

    fixed: tuple[str, ...]
    swept: Mapping[str, tuple[str, ...]]

    def points(self) -> Iterator[dict[str, str]]:
        """Every combination: all conditions of a seed before the next seed, so that what is done
        at any time is compared in pairs. The seed is named last."""
        conditions = {key: values for key, values in self.swept.items() if key != SEED}
        for seed in self.swept.get(SEED, ("",)):
            for values in itertools.product(*conditions.values()):
                own = {SEED: seed} if SEED in self.swept else {}
                yield dict(zip(conditions, values, strict=True)) | own


def grid_of(params: Mapping[str, str], texts: Sequence[str], parser: OverridesParser) -> Grid:
    """The grid of a sweep's own keys and of overrides, which replace those of the same key. A key
    of the sweep's own is swept with a single value too.

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
            f"{override.input_line} is a search space and no list of values: pass values with "
            "commas, or search with hydra/sweeper=rlhf_lab_search"
        )
    found = tuple(override.sweep_string_iterator())
    if not found:
        raise UserError(f"{override.input_line} has no value: the grid is empty; pass at least one")
    if twice := sorted(value for value, times in Counter(found).items() if times > 1):
        raise UserError(
            f"{key}={','.join(found)} has {twice[0]} twice: every value once, since a job that "
            "runs twice tells nothing new"
        )
    return found


def name_of(point: Mapping[str, str]) -> str:
    """A point as the path of a folder, `algo-grpo/seed-1`: a level for each swept key."""
    levels = [
        f"{key}-{value}" for key, value in zip(short(list(point)), point.values(), strict=True)
    ]
    for level in levels:
        if len(level.encode()) > LONGEST_LEVEL:
            raise UserError(
                f"{level[:60]}... is too long for the name of a folder: sweep over overlays with "
                "short names instead (conf/experiment), or set output.dir"
            )
    return "/".join(level.translate(UNFIT) for level in levels) or "job"


def short(keys: Sequence[str]) -> list[str]:
    """Each key's last word, or the whole key where two end alike."""
    plain = [key.lstrip("+~") for key in keys]
    last = [key.split("@")[-1].rpartition(".")[2] for key in plain]
    return [word if last.count(word) == 1 else key for word, key in zip(last, plain, strict=True)]
