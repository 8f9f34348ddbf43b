"""A kind of constraint, and which kinds cannot stand together."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rlhf_lab.tasks.constraints.text import WORD

Params = dict[str, Any]


class Stage(IntEnum):
    """When a reference is mended: what comes later leaves alone what came before."""

    layout = 0
    words = 1
    counts = 2
    marks = 3
    case = 4
    frame = 5


@dataclass(frozen=True)
class Kind:
    """draw: parameters. say: the instruction. check: whether a text keeps it. mend: makes it so.

    touches: aspects of a text that the kind settles; no two kinds of a prompt share one.
    limits_words: it says of every word whether it may stand. brings_words: it asks for words of its
    own. A kind that limits stands with none that limits or brings. takes_request: the request's own
    sentence is a parameter. For references: allows, words that may be used; size and pieces, how
    many words and sentences a first draft should have.
    """

    name: str
    say: str
    draw: Callable[[random.Random], Params]
    check: Callable[..., bool]
    repair: Callable[..., str]
    stage: Stage
    touches: frozenset[str] = frozenset()
    limits_words: bool = False
    brings_words: bool = False
    takes_request: bool = False
    allows: Callable[..., bool] | None = None
    size: Callable[..., int] | None = None
    pieces: Callable[..., int] | None = None


def conflict(one: Kind, other: Kind) -> bool:
    """Whether two kinds could contradict each other, so that no prompt has both."""
    limits = (one.limits_words and (other.limits_words or other.brings_words)) or (
        other.limits_words and one.brings_words
    )
    return one.name == other.name or limits or bool(one.touches & other.touches)


@dataclass(frozen=True)
class Constraint:
    """A kind with its parameters."""

    kind: Kind
    params: Mapping[str, Any]

    def holds(self, text: str) -> bool:
        """Whether the text keeps it. A text without any word keeps nothing."""
        return bool(WORD.search(text)) and self.kind.check(text.strip(), **self.params)

    def instruction(self) -> str:
        """What the prompt says."""
        return self.kind.say.format(**{key: spoken(value) for key, value in self.params.items()})


def spoken(value: Any) -> str:
    """A parameter as the prompt writes it."""
    if isinstance(value, list):
        return ", ".join(f'"{item}"' for item in value)
    return str(value)


def aspects(names: str) -> frozenset[str]:
    """Aspects by name, with spaces between them."""
    return frozenset(names.split())
