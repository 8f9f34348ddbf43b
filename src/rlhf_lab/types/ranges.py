"""The range of a number: which values it may have, in words, and how others are refused.

It imports no torch: what a time-limited reward runs in a process of its own has numbers too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class Range:
    """What a number may be: between two bounds, of which `min` and `max` are allowed, `above`
    and `below` are not; or one of `also`, by what it stands for. why: ends a refusal."""

    min: float | None = None
    above: float | None = None
    max: float | None = None
    below: float | None = None
    also: Mapping[float, str] = field(default_factory=dict)
    why: str = ""

    def __post_init__(self) -> None:
        assert (self.min is None) != (self.above is None), "one lower bound"
        assert (self.max is None) != (self.below is None), "one upper bound"

    def allow(self, value: float) -> bool:
        """Whether a number is within; nan never is."""
        if value in self.also:
            return True
        is_high = value >= self.min if self.min is not None else value > (self.above or 0)
        is_low = value <= self.max if self.max is not None else value < (self.below or 0)
        return is_high and is_low

    def __str__(self) -> str:
        """The range in words: `0 or more and below 1`, `1 to 5, or 0 for none`."""
        if self.min is not None and self.max is not None:
            text = f"{shown(self.min)} to {shown(self.max)}"
        else:
            low = f"above {shown(self.above)}" if self.min is None else shown(self.min)
            low = low if self.min is None else f"{low} or more"
            high = "below " + shown(self.below) if self.max is None else "up to " + shown(self.max)
            text = f"{low} and {high}"
        return "".join((text, *(f", or {shown(n)} {what}" for n, what in self.also.items())))


def shown(bound: float | None) -> str:
    """A bound as it can be passed."""
    if isinstance(bound, float):
        return f"{bound:g}".replace("e+0", "e").replace("e-0", "e-")
    return str(bound)


def items(key: str, value: Any) -> list[tuple[str, Any]]:
    """The values in a list or mapping, with the key of each; any other value by itself."""
    if isinstance(value, Mapping):
        return [(f"{key}.{name}", inner) for name, inner in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(f"{key}[{index}]", inner) for index, inner in enumerate(value)]
    return [(key, value)]


def require_finite(key: str, value: Any) -> None:
    """Refuse nan and infinity in what may be anything: no file of a run can hold them."""
    for name, inner in items(key, value):
        if inner is not value:
            require_finite(name, inner)
        elif isinstance(inner, float) and not math.isfinite(inner):
            raise UserError(f"{name}={inner} is no finite number: choose one")


def require(key: str, value: Any, allowed: Range, is_whole: bool) -> None:
    """Refuse a value that is no number, or none within the range."""
    why = f" ({allowed.why})" if allowed.why else ""
    is_number = isinstance(value, int if is_whole else int | float) and value is not True
    if not is_number or value is False:
        kind = "whole number" if is_whole else "number"
        raise UserError(f"{key}={value!r} is no {kind}: choose {allowed}{why}")
    if not allowed.allow(value):
        raise UserError(f"{key}={value} is out of range: choose {allowed}{why}")
