"""Small rules for `reward=function`, as rewards or as gates: most give 1 where the rule is kept,
else 0.

reward.path=rlhf_lab.rewards.rules.NAME; parameters after `finished` are set by reward.arguments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.types.errors import UserError

Hidden = Mapping[str, Any]
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


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
    """The share of the texts that it contains, in capitals or not: 1 for all of them."""
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


def similarity(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    pattern: str = "",
    wrong: float = -1.0,
) -> float:
    """How similar the answer is to the reference, from 0 to 1: twice the matching characters over
    all (difflib), as in SWE-RL (arXiv:2502.18449, section 2.2).

    pattern: a regular expression whose group 1 is the answer in the completion; `wrong` is the
    score where it finds none. Without a pattern the whole completion is the answer.
    """
    answer = completion
    if pattern:
        found = re.search(pattern, completion, re.DOTALL)
        if found is None:
            return wrong
        answer = found.group(1)
    return difflib.SequenceMatcher(None, answer.strip(), reference.strip(), False).ratio()


def progress(
    prompt: str,
    completion: str,
    *,
    reference: str,
    hidden: Hidden,
    finished: bool,
    separator: str = "\n\n",
    weight: float = 0.2,
) -> float:
    """1 if the last number is the reference's, plus `weight` times the share of episodes after
    which it was so already.

    Episodes are what `separator` divides. That share is 1 less the mean regret over episodes,
    which MRT lowers (arXiv:2503.07572); success after an episode is that the last number so far is
    right, in place of the policy's probability of a right answer when it has to give one there.
    """
    expected = last_number(reference)
    if expected is None:
        raise UserError(
            f"reward.path=rlhf_lab.rewards.rules.progress: the reference {reference[-60:]!r} has "
            "no number: choose a task whose references end in one"
        )
    right = [last_number(one) == expected for one in prefixes(completion, separator)]
    return float(right[-1]) + weight * sum(right) / len(right)


def prefixes(text: str, separator: str) -> list[str]:
    """The text up to the end of each episode; at least one."""
    parts = [part for part in text.split(separator) if part.strip()] or [text]
    return [separator.join(parts[: end + 1]) for end in range(len(parts))]


def last_number(text: str) -> str | None:
    """The last number in a text, without commas; None if there is none."""
    found = NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None


def repeated_share(text: str, words: int) -> float:
    """Share of the n-grams of words that stood earlier in the text; 0 for a text without any."""
    split = text.split()
    grams = [tuple(split[start : start + words]) for start in range(len(split) - words + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
