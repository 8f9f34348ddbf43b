"""The range of every number of the config: declared beside the field, checked in one place.

It imports no torch: what a time-limited reward runs in a process of its own has numbers too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from rlhf_lab.types.errors import UserError

Value = TypeVar("Value")
KEY = "limits"
# What no run comes near, and what indices and products of two still count exactly.
MOST = 10**9
MOST_TOKENS = 10**7
MOST_ROWS_AT_ONCE = 10**6
# Far more than a machine has cores: OpenMP dies of a thousand times as many.
MOST_THREADS = 1024
# Beyond it float32 loses the units of a score.
LARGEST_SCORE = 1e6
LONGEST_SECONDS = 1e7
# What fits the 64 bits that torch, JSON readers and Parquet give a whole number.
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Limits:
    """What a number may be: between two bounds, of which `least` and `most` are allowed, `above`
    and `below` are not; or one of `also`, by what it stands for. why: ends a refusal."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    also: Mapping[float, str] = field(default_factory=dict)
    why: str = ""

    def __post_init__(self) -> None:
        assert (self.least is None) != (self.above is None), "one lower bound"
        assert (self.most is None) != (self.below is None), "one upper bound"

    def allow(self, value: float) -> bool:
        """Whether a number is within; nan never is."""
        if value in self.also:
            return True
        is_high = value >= self.least if self.least is not None else value > (self.above or 0)
        is_low = value <= self.most if self.most is not None else value < (self.below or 0)
        return is_high and is_low

    def __str__(self) -> str:
        """The range as a person would say it: `0 or more and below 1`, `1 to 5, or 0 for none`."""
        if self.least is not None and self.most is not None:
            text = f"{shown(self.least)} to {shown(self.most)}"
        else:
            low = f"above {shown(self.above)}" if self.least is None else shown(self.least)
            low = low if self.least is None else f"{low} or more"
            high = (
                "below " + shown(self.below) if self.most is None else "up to " + shown(self.most)
            )
            text = f"{low} and {high}"
        return "".join((text, *(f", or {shown(n)} {what}" for n, what in self.also.items())))


def shown(bound: float | None) -> str:
    """A bound as it can be passed."""
    if isinstance(bound, float):
        return f"{bound:g}".replace("e+0", "e").replace("e-0", "e-")
    return str(bound)


def within(
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    also: Mapping[float, str] | None = None,
    why: str = "",
) -> dict[str, Limits]:
    """The metadata of a field that holds a number, or a list or mapping of numbers."""
    return {KEY: Limits(least, above, most, below, also or {}, why)}


def number(default: Value, **bounds: Any) -> Value:
    """A field with a default and the bounds of `within`."""
    return field(default=default, metadata=within(**bounds))


def count(default: int, least: int = 1, most: int = MOST, **rest: Any) -> int:
    """A field that counts something."""
    return number(default, least=least, most=most, **rest)


def share(default: float, most: float = 1) -> float:
    """A field from nothing to all."""
    return number(default, least=0, most=most)


SCORE = within(least=-LARGEST_SCORE, most=LARGEST_SCORE)


def score(default: float) -> float:
    """A field in points of a reward."""
    return number(default, least=-LARGEST_SCORE, most=LARGEST_SCORE)


def coefficient(default: float) -> float:
    """A field that weighs a score or costs so much of it; 0 is none."""
    return number(default, least=0, most=LARGEST_SCORE)


def seconds(default: float, **rest: Any) -> float:
    """A field of seconds, after which something is given up."""
    return number(default, above=0, most=LONGEST_SECONDS, **rest)


def pause(default: float) -> float:
    """A field of seconds that are waited for, if at all."""
    return number(default, least=0, most=LONGEST_SECONDS)


def tokens(default: int, least: int = 1, **rest: Any) -> int:
    """A field of tokens of one sample."""
    return count(default, least, MOST_TOKENS, **rest)


def rows(default: int) -> int:
    """A field of rows that a model reads at a time."""
    return count(default, most=MOST_ROWS_AT_ONCE)


def threads(default: int) -> int:
    """A field of torch threads per operation."""
    return count(default, most=MOST_THREADS)


def seed(default: int) -> int:
    """A field that keys randomness."""
    return count(default, least=0, most=LARGEST_SEED)


SEEDS = within(least=0, most=LARGEST_SEED)


class Limited:
    """A part of the config, mounted at `key`, whose numbers are checked when it is made."""

    _key: ClassVar[str] = ""

    def __init_subclass__(cls, key: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._key = key or cls._key

    def __post_init__(self) -> None:
        check(self, type(self), self._key)


@dataclass(frozen=True)
class Column:
    """A field of a part. limits: None where it holds no number by its type. is_many: it holds a
    list or mapping of them."""

    name: str
    limits: Limits | None
    is_whole: bool
    is_many: bool


@functools.cache
def columns(part: type) -> tuple[Column, ...]:
    """The fields of a part. One that holds numbers by its type must have limits: a test sees to
    that."""
    hints = get_type_hints(part)
    return tuple(
        Column(
            f.name,
            f.metadata.get(KEY),
            is_whole=int in types_of(hints[f.name]),
            is_many=get_origin(hints[f.name]) in (list, dict),
        )
        for f in fields(part)
    )


def limits_of(part: type, name: str) -> Limits | None:
    """The limits of one field."""
    return next(column.limits for column in columns(part) if column.name == name)


def types_of(hint: Any) -> Iterator[Any]:
    """A type and those that it is made of: list[int] holds int."""
    yield hint
    for inner in get_args(hint):
        yield from types_of(inner)


def check(values: Any, part: type, key: str) -> None:
    """Refuse what is out of the range that the part's fields declare. values: the part or its
    composed twin, mounted at `key`."""
    for column in columns(part):
        place = f"{key}.{column.name}" if key else column.name
        value = getattr(values, column.name)
        if column.limits is None:
            require_finite(place, value)
            continue
        for name, one in held(place, value) if column.is_many else [(place, value)]:
            require(name, one, column.limits, column.is_whole)


def held(place: str, value: Any) -> list[tuple[str, Any]]:
    """What a list or mapping holds, with the place of each; any other value by itself."""
    if isinstance(value, Mapping):
        return [(f"{place}.{name}", inner) for name, inner in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(f"{place}[{index}]", inner) for index, inner in enumerate(value)]
    return [(place, value)]


def require_finite(key: str, value: Any) -> None:
    """Refuse nan and infinity in what may be anything: no file of a run can hold them."""
    for name, inner in held(key, value):
        if inner is not value:
            require_finite(name, inner)
        elif isinstance(inner, float) and not math.isfinite(inner):
            raise UserError(f"{name}={inner} is no finite number: choose one")


def require(key: str, value: Any, limits: Limits, is_whole: bool) -> None:
    """Refuse a value that is no number, or none within the limits."""
    why = f" ({limits.why})" if limits.why else ""
    is_number = isinstance(value, int if is_whole else int | float) and value is not True
    if not is_number or value is False:
        kind = "whole number" if is_whole else "number"
        raise UserError(f"{key}={value!r} is no {kind}: choose {limits}{why}")
    if not limits.allow(value):
        raise UserError(f"{key}={value} is out of range: choose {limits}{why}")
