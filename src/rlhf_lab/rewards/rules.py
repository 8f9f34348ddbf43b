"""Small rules for `reward=function`, as rewards or as gates: 1 where the rule is kept, else 0.

reward.path=rlhf_lab.rewards.rules.NAME; what stands after `finished` is set by reward.arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Hidden = Mapping[str, Any]


def finished(
    prompt: str, completion: str, *, reference: str, hidden: Hidden, finished: bool
) -> float:
    """The end token was written."""
    return float(finished)


def not_empty(
    prompt: str, completion: str, *, reference: str, hidden: Hidden, finished: bool
) -> float:
    """There is more than white space."""
    return float(bool(completion.strip()))


def length_within(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    least: int = 1,
    most: int = 1_000_000,
) -> float:
    """At least and at most so many words."""
    return float(least <= len(completion.split()) <= most)


def no_repetition(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    words: int = 3,
    most: float = 0.2,
) -> float:
    """Of the runs of so many words, at most this share was there before."""
    return float(repeated_share(completion, words) <= most)


def mentions(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    texts: Sequence[str],
) -> float:
    """The share of the texts that stand in it, in capitals or not: 1 for all of them."""
    is_mentioned = [text.lower() in completion.lower() for text in texts]
    return sum(is_mentioned) / len(is_mentioned)


def matches(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    pattern: str,
) -> float:
    """The whole answer, without white space around it, matches a regular expression, in which a
    dot is also a line's end."""
    return float(re.fullmatch(pattern, completion.strip(), re.DOTALL) is not None)


def repeated_share(text: str, words: int) -> float:
    """Share of the n-grams of words that stood earlier in the text; 0 for a text without any."""
    split = text.split()
    grams = [tuple(split[start : start + words]) for start in range(len(split) - words + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
