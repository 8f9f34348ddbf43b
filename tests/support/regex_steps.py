"""A matcher of regular expressions that backtracks as `re` does and counts its steps."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Then = Callable[[int], int | None]
CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
# Far above what linear steps come to in the texts of `growth`.
MOST = 20_000
ONE_CHARACTER = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)


class TooMany(Exception):
    """A search took more than MOST steps."""


class Steps:
    """One search: `spans` are those of `finditer`, or of a match at the start alone. count: how
    often an item of the expression was tried at a place."""

    def __init__(self, pattern: re.Pattern[str], text: str, is_anchored: bool = False) -> None:
        self._text = text
        self._is_alike = bool(pattern.flags & re.IGNORECASE)
        self._is_dotall = bool(pattern.flags & re.DOTALL)
        self._is_multiline = bool(pattern.flags & re.MULTILINE)
        self._groups: dict[int, tuple[int, int]] = {}
        self.count = 0
        self.spans: list[tuple[int, int]] = []
        tree, start = list(parser.parse(pattern.pattern, pattern.flags)), 0
        while start <= len(text):
            end = self._match(tree, start, lambda place: place)
            if end is not None:
                self.spans.append((start, end))
            if is_anchored:
                return
            start = end if end is not None and end > start else start + 1

    def _match(self, items: Sequence[Any], place: int, then: Then) -> int | None:
        """The end of a match of the items and of all that follows, None if there is none."""
        if not items:
            return then(place)
        self.count += 1
        if self.count > MOST:
            raise TooMany
        (kind, value), rest = items[0], items[1:]

        def after(end: int) -> int | None:
            return self._match(rest, end, then)

        if kind in ONE_CHARACTER:
            return after(place + 1) if self._is_one(kind, value, place) else None
        if kind is op.BRANCH:
            ends = (self._match([*branch, *rest], place, then) for branch in value[1])
            return next((end for end in ends if end is not None), None)
        if kind is op.SUBPATTERN:
            return self._group(value, place, after)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return after(place) if self._looks(kind, value, place) else None
        if kind is op.AT:
            return after(place) if self._is_at(value, place) else None
        if kind is op.GROUPREF:
            start, end = self._groups[value]
            there = self._text.startswith(self._text[start:end], place)
            return after(place + end - start) if there else None
        if kind is op.ATOMIC_GROUP:
            found = self._match(list(value), place, lambda end: end)
            return None if found is None else after(found)
        least, most, inner = value
        bound = len(self._text) + 1 if most is op.MAXREPEAT else most
        return self._repeat(kind, (least, bound), list(inner), place, after)

    def _group(self, value: Any, place: int, after: Then) -> int | None:
        number, _, _, inner = value

        def close(end: int) -> int | None:
            self._groups[number] = (place, end)
            return after(end)

        return self._match(list(inner), place, close)

    def _repeat(
        self, kind: Any, bounds: tuple[int, int], inner: list[Any], place: int, after: Then
    ) -> int | None:
        least, most = bounds
        if len(inner) == 1 and inner[0][0] in ONE_CHARACTER:
            return self._repeat_one(kind, bounds, inner[0], place, after)
        if kind is op.POSSESSIVE_REPEAT:
            counted, end = 0, place
            while counted < most:
                further = self._match(inner, end, lambda stop: stop)
                if further is None or further == end:
                    break
                counted, end = counted + 1, further
            return after(end) if counted >= least else None

        def again(number: int, at: int) -> int | None:
            def more(end: int) -> int | None:
                return None if end == at and number >= least else again(number + 1, end)

            if number < least:
                return self._match(inner, at, more)
            ways: list[Callable[[], int | None]] = [lambda: after(at)]
            if number < most:
                ways.append(lambda: self._match(inner, at, more))
            if kind is op.MAX_REPEAT:
                ways.reverse()
            ends = (way() for way in ways)
            return next((end for end in ends if end is not None), None)

        return again(0, place)

    def _repeat_one(
        self, kind: Any, bounds: tuple[int, int], item: Any, place: int, after: Then
    ) -> int | None:
        least, most = bounds
        end, (one, value) = place, item
        while end - place < most and self._is_one(one, value, end):
            self.count += 1
            end += 1
        stops = range(place + least, end + 1)
        if kind is op.MAX_REPEAT:
            stops = stops[::-1]
        elif kind is op.POSSESSIVE_REPEAT:
            stops = stops[-1:]
        for stop in stops:
            self.count += 1
            if (found := after(stop)) is not None:
                return found
        return None

    def _looks(self, kind: Any, value: Any, place: int) -> bool:
        direction, inner = value
        starts = [place] if direction > 0 else range(place + 1)
        wanted: Then = (lambda end: end) if direction > 0 else self._ends_at(place)
        # What stands behind has a fixed width: only the last few places can begin it.
        width = inner.getwidth()[1]
        near = [start for start in starts if direction > 0 or place - start <= width]
        found = any(self._match(list(inner), start, wanted) is not None for start in near)
        return found is (kind is op.ASSERT)

    @staticmethod
    def _ends_at(place: int) -> Then:
        return lambda end: end if end == place else None

    def _is_one(self, kind: Any, value: Any, place: int) -> bool:
        if place >= len(self._text):
            return False
        character = self._text[place]
        if kind is op.ANY:
            return self._is_dotall or character != "\n"
        if kind is op.IN:
            return self._is_in(value, character)
        return (kind is op.LITERAL) is self._same(character, chr(value))

    def _same(self, one: str, other: str) -> bool:
        return one == other or (self._is_alike and one.lower() == other.lower())

    def _is_in(self, parts: Sequence[Any], character: str) -> bool:
        negated = parts[0][0] is op.NEGATE
        forms = {character}
        if self._is_alike:
            forms |= {character.lower(), character.upper()}
        found = any(
            (kind is op.LITERAL and chr(value) in forms)
            or (kind is op.RANGE and any(value[0] <= ord(f) <= value[1] for f in forms if f[:1]))
            or (kind is op.CATEGORY and re.fullmatch(CATEGORIES[value], character) is not None)
            for kind, value in parts
        )
        return found is not negated

    def _is_at(self, where: Any, place: int) -> bool:
        text, is_multiline = self._text, self._is_multiline
        before, behind = text[place - 1 : place] if place else "", text[place : place + 1]
        if where is op.AT_BEGINNING:
            return not before or (is_multiline and before == "\n")
        if where is op.AT_END:
            is_last = behind == "\n" and (is_multiline or place == len(text) - 1)
            return not behind or is_last
        if where in (op.AT_BEGINNING_STRING, op.AT_END_STRING):
            return not (before if where is op.AT_BEGINNING_STRING else behind)
        is_border = bool(re.match(r"\w", before)) is not bool(re.match(r"\w", behind))
        return is_border is (where is op.AT_BOUNDARY)


def sample(items: Sequence[Any]) -> Iterator[str]:
    """Characters of a text that an expression is likely to begin to match, in order."""
    for kind, value in items:
        if kind is op.LITERAL:
            yield chr(value)
        elif kind is op.IN:
            choices = [c for c in " a1.\n*-" if re.match(r"[^\W\d]|\W|\d", c)]
            probe = Steps(re.compile("x"), "x")
            yield next((c for c in choices if probe._is_in(value, c)), chr(first_of(value)))
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            yield from list(sample(value[2])) * max(1, min(value[0], 4))
        elif kind is op.SUBPATTERN:
            yield from sample(value[3])
        elif kind is op.ATOMIC_GROUP:
            yield from sample(value)
        elif kind is op.BRANCH:
            yield from sample(value[1][0])
        elif kind in (op.ANY, op.NOT_LITERAL):
            yield "a"


def first_of(parts: Sequence[Any]) -> int:
    """A character that a class names."""
    named = [value if kind is op.LITERAL else value[0] for kind, value in parts
             if kind in (op.LITERAL, op.RANGE)]  # fmt: skip
    return int(named[0]) if named else ord("a")


def growth(pattern: re.Pattern[str], is_anchored: bool = False) -> tuple[float, str]:
    """The largest factor by which the steps grow when a text grows to twice its length, 2 where
    they are linear; and the part of the text that is repeated there. The texts are beginnings of
    what the expression matches, then a part of it again and again, then what it does not match."""
    whole = "".join(sample(parser.parse(pattern.pattern, pattern.flags)))[:12]
    heads = list(dict.fromkeys(whole[:length] for length in (0, 1, 2, 4, 5, 12)))
    units = dict.fromkeys([*" a1.\n", *whole, *heads[1:]])
    worst = (0.0, "")
    for head, unit, tail in itertools.product(heads, units, ("", "\0")):
        texts = (head + unit * (size // len(unit)) + tail for size in (32, 64))
        try:
            short, long = (Steps(pattern, text, is_anchored).count for text in texts)
        except TooMany:
            return math.inf, head + unit
        worst = max(worst, (long / short, head + unit))
    return worst
