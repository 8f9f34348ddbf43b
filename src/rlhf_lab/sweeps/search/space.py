"""The space of a search, in Hydra's grammar of sweeps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep

from rlhf_lab.types.errors import UserError

Value = str | int | float
# Keys that change how a setting is measured, or do not change training.
UNSEARCHABLE = (
    *("output", "checkpoint", "eval", "tracker", "data", "hydra", "launcher", "task", "reward"),
    *("judge", "proxy", "labels", "reward_model"),
)
GRAMMAR = "choice(a,b), range(1,9), interval(0.1,0.9) or tag(log,interval(1e-5,1e-3))"


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter. choices: texts of overrides; without them, numbers from low to high, both
    included, in steps (None: continuous)."""

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    is_log: bool = False

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int)

    @property
    def values(self) -> tuple[Value, ...] | None:
        """All of its values; None for a continuous dimension."""
        if self.choices:
            return self.choices
        if self.step is None:
            return None
        count = round((self.high - self.low) / self.step) + 1
        return tuple(round_float(self.low + number * self.step) for number in range(count))

    @property
    def label(self) -> str:
        """The dimension as text, in reports and in the study's spec."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = "whole number " if self.is_integer else ""
        steps = f" by {self.step:g}" if self.step not in (None, 1) else ""
        return f"{kind}{self.low:g} to {self.high:g}{steps}{', log' if self.is_log else ''}"


def to_overrides(setting: Mapping[str, Value]) -> list[str]:
    """A setting as overrides; numbers are written exactly."""
    return [
        f"{key}={value if isinstance(value, str) else repr(value)}"
        for key, value in setting.items()
    ]


def parse_space(texts: Sequence[str], parser: OverridesParser) -> tuple[list[str], list[Dimension]]:
    """The fixed overrides of all runs, and the space of the others. A later override of a key
    replaces an earlier one."""
    last: dict[str, Override] = {}
    for override in parser.parse_overrides(list(texts)):
        last[override.get_key_element()] = override
    fixed = {key: str(one.input_line) for key, one in last.items() if not one.is_sweep_override()}
    space = {key: dimension(key, one) for key, one in last.items() if one.is_sweep_override()}
    check_space(fixed, space)
    return list(fixed.values()), list(space.values())


def check_space(fixed: Mapping[str, str], space: Mapping[str, Dimension]) -> None:
    """Refuse an empty space, and keys that are no hyperparameters."""
    for key in ("seed", "output.dir", "output.resume"):
        if key in space or key in fixed:
            raise UserError(
                f"{key} in a search: each setting is run on hydra.sweeper.tuning_seeds, in folders "
                "of its own; leave it out"
            )
    if not space:
        raise UserError(
            f"the search has nothing to search: sweep one key or more, with {GRAMMAR}, on the "
            "command line or under hydra.sweeper.params"
        )
    for key in space:
        # model@proxy is mounted at proxy.
        if key.split("@")[-1].split(".")[0].lstrip("+") in UNSEARCHABLE:
            raise UserError(
                f"{key} cannot be searched: it decides how all settings are measured, or does "
                "not change training; give it one value"
            )


def dimension(key: str, override: Override) -> Dimension:
    value: Any = override.value()
    tags = set(getattr(value, "tags", ()))
    if tags - {"log"}:
        raise UserError(f"{key}: tag({sorted(tags - {'log'})[0]}, ...) is unknown; the tag is log")
    if isinstance(value, IntervalSweep):
        assert value.start is not None and value.end is not None, "the grammar demands both"
        found = Dimension(key, low=value.start, high=value.end, is_log="log" in tags)
    elif isinstance(value, RangeSweep):
        found = range_dimension(key, override, value, "log" in tags)
    else:
        texts = tuple(dict.fromkeys(override.sweep_string_iterator()))
        if tags:
            raise UserError(f"{key}: choices have no scale; pass {key}=tag(log,interval(...))")
        found = Dimension(key, choices=texts)
    return check_dimension(found)


def range_dimension(key: str, override: Override, value: RangeSweep, is_log: bool) -> Dimension:
    """The dimension of range(start, stop, step), which excludes stop."""
    numbers: list[Any] = sorted(override.sweep_iterator())
    if not numbers:
        raise UserError(f"{key}={override.input_line}: an empty range; its stop is left out")
    return Dimension(
        key, (), round_float(numbers[0]), round_float(numbers[-1]), abs(value.step), is_log
    )


def round_float(number: float) -> float:
    """A number of a range without rounding errors: 0.1 + 0.2 is 0.3."""
    return number if isinstance(number, int) else float(f"{number:.12g}")


def check_dimension(found: Dimension) -> Dimension:
    """The dimension. Raises UserError if it has one value, or if its log scale is impossible."""
    if len(found.choices) == 1 or (not found.choices and found.low >= found.high):
        only = found.choices[0] if found.choices else f"{found.low:g} to {found.high:g}"
        raise UserError(
            f"{found.key} has one value to choose from ({only}): give it several, or pass it "
            "without choice, range or interval"
        )
    if found.is_log and (found.low <= 0 or found.step not in (None, 1)):
        raise UserError(
            f"{found.key}: {found.label}: a log scale starts above 0, with step 1; pass "
            f"tag(log,interval({max(found.low, 1e-6):g},{found.high:g})), or leave out the tag"
        )
    return found


def grid(space: Sequence[Dimension]) -> list[dict[str, Value]]:
    """All settings of a space. Raises UserError for a continuous dimension."""
    columns = []
    for part in space:
        values = part.values
        if values is None:
            raise UserError(
                f"hydra.sweeper.sampler=grid with {part.key} from {part.label}: a grid needs "
                "single values; pass choice(...) or range(...), or sampler=tpe"
            )
        columns.append(values)
    keys = [part.key for part in space]
    return [dict(zip(keys, row, strict=True)) for row in itertools.product(*columns)]
