"""The benchmark's reward, in the form that each side calls: cheap, and the same number on both.

Needs the standard library alone, so that it is importable in either environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LETTERS = frozenset("aeiou")


def share_of_vowels(text: str) -> float:
    """Vowels over characters, 0 of an empty text: almost never the same for two texts."""
    return sum(letter in LETTERS for letter in text) / max(1, len(text))


def reward(
    prompt: str, completion: str, *, reference: str, hidden: Mapping[str, Any], finished: bool
) -> float:
    """For reward=function: one completion a call."""
    return share_of_vowels(completion)


class Counted:
    """For TRL: all completions of a round in one call, whose tokens are counted as they pass.

    eos: the end token. Tokens up to the first one, itself included, are what was generated.
    """

    def __init__(self, eos: int) -> None:
        self._eos = eos
        self.completions = 0
        self.tokens = 0
        self.__name__ = "share_of_vowels"

    def __call__(
        self, completions: Sequence[str], completion_ids: Sequence[Sequence[int]], **_: Any
    ) -> list[float]:
        self.completions += len(completions)
        self.tokens += sum(count_tokens(row, self._eos) for row in completion_ids)
        return [share_of_vowels(text) for text in completions]


def count_tokens(row: Sequence[int], eos: int) -> int:
    """Tokens of a completion that may be padded behind its end token."""
    found = list(row)
    return found.index(eos) + 1 if eos in found else len(found)
