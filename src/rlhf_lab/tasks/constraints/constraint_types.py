"""Types of constraints, which of them exclude each other, and scores of texts by constraints."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Protocol

from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import WORD, words

Params = dict[str, Any]
Draw = Callable[[random.Random], Params]
UNBOUNDED = 10**6


class Stage(IntEnum):
    """The order of repairs: a later repair leaves the results of earlier ones intact."""

    layout = 0
    words = 1
    counts = 2
    marks = 3
    case = 4
    frame = 5


def no_params(rng: random.Random) -> Params:
    return {}


def draw_n(low: int, high: int) -> Draw:
    """A parameter n from low to high, both included."""
    return lambda rng: {"n": rng.randint(low, high)}


def unchanged(text: str, writer: ReferenceWriter, **params: Any) -> str:
    """The repair of a type whose `allows` keeps every draft correct."""
    return text


@dataclass(frozen=True)
class ConstraintType:
    """instruction: the sentence in the prompt. check(text, **params): whether a text satisfies it.
    repair(text, writer, **params): the text changed so that it does. draw(rng): parameters.

    aspects: names, separated by spaces, of what the type fixes about a text; the types of a prompt
    share none. limits_words: the type restricts every word. brings_words: it demands words of its
    own. A type that limits words excludes all that limit or bring words. takes_request: the
    prompt's request is a parameter. For reference answers: allows(word, **params), whether a word
    may be used; draft_words and draft_sentences, how many of them the first draft gets.
    """

    name: str
    instruction: str
    check: Callable[..., bool]
    repair: Callable[..., str] = unchanged
    draw: Draw = no_params
    stage: Stage = Stage.words
    aspects: str = ""
    limits_words: bool = False
    brings_words: bool = False
    takes_request: bool = False
    allows: Callable[..., bool] | None = None
    draft_words: Callable[..., int] | None = None
    draft_sentences: Callable[..., int] | None = None


def conflict(one: ConstraintType, other: ConstraintType) -> bool:
    """Whether two types could contradict each other, so that no prompt has both."""
    limits = (one.limits_words and (other.limits_words or other.brings_words)) or (
        other.limits_words and one.brings_words
    )
    shared = set(one.aspects.split()) & set(other.aspects.split())
    return one.name == other.name or limits or bool(shared)


@dataclass(frozen=True)
class Constraint:
    """A type with its parameters."""

    type: ConstraintType
    params: Mapping[str, Any]

    def holds(self, text: str) -> bool:
        """Whether the text satisfies it. A text without any word satisfies nothing."""
        return bool(WORD.search(text)) and self.type.check(text.strip(), **self.params)

    def instruction(self) -> str:
        """The sentence in the prompt."""
        params = {key: param_text(value) for key, value in self.params.items()}
        return self.type.instruction.format(**params)


def param_text(value: Any) -> str:
    """A parameter as the prompt spells it."""
    if isinstance(value, list):
        return ", ".join(f'"{item}"' for item in value)
    return str(value)


@dataclass(frozen=True)
class Limit:
    """A limit n on a count, drawn from low to high. is_lower, is_upper: which side it bounds.

    margin: distance of a first draft's count from n.
    """

    low: int
    high: int
    is_lower: bool = True
    is_upper: bool = True
    margin: int = 0

    def bounds(self, n: int) -> tuple[int, int]:
        """The least and the largest count that satisfy n."""
        return n if self.is_lower else 0, n if self.is_upper else UNBOUNDED


def at_least(low: int, high: int) -> Limit:
    return Limit(low, high, is_upper=False, margin=3)


def at_most(low: int, high: int) -> Limit:
    return Limit(low, high, is_lower=False, margin=-4)


def exactly(low: int, high: int) -> Limit:
    return Limit(low, high)


@dataclass(frozen=True)
class Count:
    """Something that is counted in a text. repair(text, writer, least, most) changes the count.

    is_word_count: a draft has about the limit's number of words. is_part_count: it has a sentence
    for each of the n parts.
    """

    measure: Callable[[str], int]
    repair: Callable[[str, ReferenceWriter, int, int], str]
    stage: Stage
    aspects: str = ""
    is_word_count: bool = False
    is_part_count: bool = False
    brings_words: bool = False

    def limited(
        self, name: str, instruction: str, limit: Limit, aspects: str = ""
    ) -> ConstraintType:
        """The type that limits the count. aspects: more than those of the count."""

        def check(text: str, n: int) -> bool:
            least, most = limit.bounds(n)
            return least <= self.measure(text) <= most

        return ConstraintType(
            name,
            instruction,
            check,
            lambda text, writer, n: self.repair(text, writer, *limit.bounds(n)),
            draw_n(limit.low, limit.high),
            self.stage,
            f"{self.aspects} {aspects}",
            brings_words=self.brings_words,
            draft_words=(lambda n: n + limit.margin) if self.is_word_count else None,
            draft_sentences=(lambda n: n) if self.is_part_count else None,
        )


def each_word(
    name: str, instruction: str, draw: Draw, allows: Callable[..., bool], **options: Any
) -> ConstraintType:
    """The type that a text satisfies if every word is allowed."""

    def check(text: str, **params: Any) -> bool:
        return all(allows(word, **params) for word in words(text))

    return ConstraintType(name, instruction, check, draw=draw, allows=allows, **options)


class Score(StrEnum):
    """all: 1 if every constraint holds, else 0. share: the share of them that holds."""

    all = "all"
    share = "share"


class Scoring(StrEnum):
    """strict: the text itself. loose: a constraint may hold for any variant of the text."""

    strict = "strict"
    loose = "loose"


class Checked(Protocol):
    """A constraint that a text satisfies or not."""

    def holds(self, text: str) -> bool: ...


def score(constraints: Sequence[Checked], text: str, rule: Score, scoring: Scoring) -> float:
    """From 0 to 1."""
    variants = [text] if scoring is Scoring.strict else list(loosened(text))
    hold = [any(constraint.holds(variant) for variant in variants) for constraint in constraints]
    return float(all(hold)) if rule is Score.all else sum(hold) / len(hold)


def loosened(text: str) -> Iterator[str]:
    """The text; without its first line, its last, and both; and each of these without asterisks.

    This forgives an opening line such as "Sure, here it is:" and emphasis (arXiv:2311.07911).
    """
    lines = text.strip().split("\n")
    for part in (lines, lines[1:], lines[:-1], lines[1:-1]):
        variant = "\n".join(part).strip()
        yield variant
        yield variant.replace("*", "")
