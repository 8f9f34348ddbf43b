"""Where the steps of a response end: after its separators, found in the decoded text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]


def step_ends(tokens: Sequence[int], decode: Decode, separator: str, most: int) -> list[int]:
    """Last token of every step: the first one with which the decoded prefix holds the separator.

    Steps without a word belong to the next one, and those that end in one token are one. What
    follows the last separator is a step too, if it is more than white space. At least one step.
    """
    text = decode(tokens)
    ends: list[int] = []
    start = stop = number = 0
    while (index := text.find(separator, stop)) >= 0:
        stop, number = index + len(separator), number + 1
        if has_words(text[start:stop], separator):
            start = stop
            end = first_with(tokens, decode, separator, number)
            ends += [end] if end not in ends[-1:] else []
    if not ends or (has_words(text[start:], separator) and ends[-1] < len(tokens) - 1):
        ends.append(len(tokens) - 1)
    return [*ends[: most - 1], ends[-1]] if len(ends) > most else ends


def has_words(text: str, separator: str) -> bool:
    """Whether there is more to a step than what separates it from others."""
    return bool(text.replace(separator, "").strip())


def first_with(tokens: Sequence[int], decode: Decode, separator: str, number: int) -> int:
    """The first token whose decoded prefix holds the separator so many times."""

    def holds(index: int) -> bool:
        return decode(tokens[: index + 1]).count(separator) >= number

    return bisect_left(range(len(tokens) - 1), True, key=holds)
