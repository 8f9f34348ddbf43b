"""Options of the config: each is declared with its default, its range and one sentence about it.

The metadata of a dataclass field holds range, sentence and source: `OptionGroup` checks the ranges,
`rlhf-lab explain` and docs/config.md show all three.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.ranges import Range, items, require, require_finite

Value = TypeVar("Value")
Metadata = dict[str, Any]
RANGE, ABOUT, SOURCE, FORK, TRUST = "range", "about", "source", "fork", "trust"
# In the metadata of a field under FORK: the value of a fork acts from its round on. Any other text
# is the reason why a fork cannot change it; without either, the node that holds the field decides.
LATER = ""
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
# Bounds of `within`.
SCORES: Metadata = {"min": -LARGEST_SCORE, "max": LARGEST_SCORE}
SEEDS: Metadata = {"min": 0, "max": LARGEST_SEED}


def described(about: str, source: str = "", fork: str | None = None) -> Metadata:
    """The metadata of a field. about: one sentence on what the value changes, its unit and its
    special values. source: paper and equation. fork: LATER, or why a fork cannot change it."""
    return {ABOUT: about, SOURCE: source} | ({} if fork is None else {FORK: fork})


def node(fork: str) -> Any:
    """A field that holds a part. fork: as for `described`, for all options of the part."""
    return field(metadata={FORK: fork})


def within(
    *,
    about: str,
    source: str = "",
    fork: str | None = None,
    min: float | None = None,
    above: float | None = None,
    max: float | None = None,
    below: float | None = None,
    also: Mapping[float, str] | None = None,
    why: str = "",
) -> Metadata:
    """The metadata of a field that holds a number, or a list or mapping of numbers."""
    bounds = Range(min, above, max, below, also or {}, why)
    return described(about, source, fork) | {RANGE: bounds}


NAME = described("Name of the option, by which lists and tables of runs call it.")


def name(default: str) -> str:
    """The field `name` of an option of a group."""
    return field(default=default, metadata=NAME)


def option(
    default: Value, about: str, source: str = "", fork: str | None = None, trust: bool = False
) -> Value:
    """An option that is not a number. trust: whether the value names code that is run, or where a
    key is sent, for which another author's run needs --trust."""
    return field(default=default, metadata=described(about, source, fork) | {TRUST: trust})


def collection(make: Callable[[], Value], about: str, source: str = "", **bounds: Any) -> Value:
    """A field with a list or mapping. bounds: of the numbers in it."""
    found = within(about=about, source=source, **bounds) if bounds else described(about, source)
    return field(default_factory=make, metadata=found)


def number(default: Value, **bounds: Any) -> Value:
    """A field with a default and the bounds, sentence and source of `within`."""
    return field(default=default, metadata=within(**bounds))


def count(default: int, *, about: str, min: int = 1, max: int = MOST, **rest: Any) -> int:
    """A field that counts something."""
    return number(default, about=about, min=min, max=max, **rest)


def share(default: float, *, about: str, max: float = 1, **rest: Any) -> float:
    """A float option in [0, 1]."""
    return number(default, about=about, min=0, max=max, **rest)


def score(default: float, *, about: str, source: str = "") -> float:
    """A field in points of a reward."""
    return number(default, about=about, source=source, **SCORES)


def coefficient(default: float, *, about: str, source: str = "") -> float:
    """A field that weighs a score or costs so much of it; 0 is none."""
    return number(default, about=about, source=source, min=0, max=LARGEST_SCORE)


def seconds(default: float, *, about: str, **rest: Any) -> float:
    """A field of seconds, after which something is given up."""
    return number(default, about=about, above=0, max=LONGEST_SECONDS, **rest)


def pause(default: float, *, about: str) -> float:
    """A field of seconds that are waited for, if at all."""
    return number(default, about=about, min=0, max=LONGEST_SECONDS)


def tokens(default: int, *, about: str, min: int = 1, **rest: Any) -> int:
    """A field of tokens of one sample."""
    return count(default, about=about, min=min, max=MOST_TOKENS, **rest)


def rows(default: int, *, about: str, **rest: Any) -> int:
    """A field of rows that a model reads at a time."""
    return count(default, about=about, max=MOST_ROWS_AT_ONCE, **rest)


def threads(default: int, *, about: str) -> int:
    """A field of torch threads per operation."""
    return count(default, about=about, max=MOST_THREADS)


def seed(default: int, *, about: str, **rest: Any) -> int:
    """A field that keys randomness."""
    return number(default, about=about, **rest, **SEEDS)


class OptionGroup:
    """A part of the config, mounted at `key`, whose choices and numbers are checked when it is
    made. A choice may be passed by its name, as in `GRPO(deviation="batch")`."""

    _key: ClassVar[str] = ""

    def __init_subclass__(cls, key: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._key = key or cls._key

    def __post_init__(self) -> None:
        part: type = type(self)
        for column in columns(part):
            value = getattr(self, column.name)
            if column.choices and not isinstance(value, column.choices):
                # A name would be compared by `is` with members, and never be any of them.
                found = member(path_of(self._key, column.name), value, column.choices)
                object.__setattr__(self, column.name, found)
        check(self, part, self._key)

    def require_usable(self, key: str) -> None:
        """Raise UserError where something is absent that no config can hold: a package, a server, a
        function, an API key. key: where the part is mounted, such as `reward.terms.style`."""


def member(name: str, value: object, choices: type[Enum]) -> Enum:
    """The member of `choices` that a text names. Raises UserError if none has the name."""
    if isinstance(value, str) and value in choices.__members__:
        return choices[value]
    raise UserError(f"{name}={value}: choose one of {', '.join(choices.__members__)}")


def path_of(key: str, name: str) -> str:
    """The whole name of an option."""
    return f"{key}.{name}" if key else name


@dataclass(frozen=True)
class Column:
    """A field of a part. range: None where it holds no number by its type. is_many: it holds a
    list or mapping of them. choices: the enum of which it holds a member."""

    name: str
    range: Range | None
    about: str
    source: str
    is_whole: bool
    is_many: bool
    choices: type[Enum] | None


@functools.cache
def columns(part: type) -> tuple[Column, ...]:
    """The fields of a part. Tests require a sentence for each, and a range for numbers."""
    hints = get_type_hints(part)
    return tuple(
        Column(
            f.name,
            f.metadata.get(RANGE),
            f.metadata.get(ABOUT, ""),
            f.metadata.get(SOURCE, ""),
            is_whole=int in types_of(hints[f.name]),
            is_many=get_origin(hints[f.name]) in (list, dict),
            choices=enum_in(hints[f.name]),
        )
        for f in fields(part)
    )


def column_of(part: type, name: str) -> Column:
    """One field of a part."""
    return next(column for column in columns(part) if column.name == name)


def enum_in(hint: Any) -> type[Enum] | None:
    """The enum that a type is, None for any other."""
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else None


def types_of(hint: Any) -> Iterator[Any]:
    """A type and those that it is made of: list[int] holds int."""
    yield hint
    for inner in get_args(hint):
        yield from types_of(inner)


def check(values: Any, part: type, key: str) -> None:
    """Refuse what is out of the range that the part's fields declare. values: the part or its
    composed twin, mounted at `key`."""
    for column in columns(part):
        name, value = path_of(key, column.name), getattr(values, column.name)
        if column.range is None:
            require_finite(name, value)
            continue
        for inner_name, inner in items(name, value) if column.is_many else [(name, value)]:
            require(inner_name, inner, column.range, column.is_whole)
