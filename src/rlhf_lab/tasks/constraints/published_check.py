"""What the checks of published constraints share."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass

RELATIONS = ("less than", "at least")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Published:
    """check(text, **arguments): whether a text satisfies the constraint. arguments: the names of
    those that a row must give; others of the row are not read."""

    check: Callable[..., bool]
    arguments: tuple[str, ...] = ()


def within(count: int, relation: str, limit: float) -> bool:
    """Whether a count is less than a limit, or at least the limit."""
    return count < limit if relation == RELATIONS[0] else count >= limit


def bare_words(text: str) -> list[str]:
    """What white space separates, in lower case and without punctuation."""
    return text.lower().translate(NO_PUNCTUATION).split()


def trimmed(text: str) -> str:
    """The text without white space and punctuation around it, in lower case."""
    return text.strip(string.punctuation + string.whitespace).lower()


def num_occurrences(text: str, keyword: str) -> int:
    """Occurrences, also inside of other words."""
    return text.lower().count(keyword.lower())


def has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def word_count(text: str) -> int:
    return len(re.findall(r"\w+", text))
