"""Compare final answers by math-verify, in bounded time and in any thread."""

from __future__ import annotations

import functools
import logging
import re
import threading
from typing import Any

from rlhf_lab.runs.foreign import call

NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30})(?!\d)"
SIGNED = rf"[-+]?{NUMBER}"
MORE = r"\(|, *\d| *\^| *(?:\*\*|[-+*/]) *[\d.(\\]"
ANSWER = re.compile(
    rf"#### *\\?\$? *([-+]?\\[dt]?frac\{{{SIGNED}\}}\{{{SIGNED}\}}"
    rf"|{SIGNED}(?: *[-+*/] *{NUMBER}){{0,7}})(?!{MORE})"
)
# The parser keeps state between calls.
ONE_AT_A_TIME = threading.Lock()


def is_correct(text: str, answer: str) -> bool:
    """Whether the first final answer of a solution is mathematically equal to a number.

    A final answer is `####` and then a number, a LaTeX fraction of two, or up to eight numbers
    joined by + - * /; words may follow. The package reads more, but gets no more than that: nested
    brackets and powers can occupy it for hours, and its own time limit is a signal, which works in
    main threads only.
    """
    final = answer_of(text)
    return final is not None and are_equal(answer, final)


def answer_of(text: str) -> str | None:
    """The first final answer of a solution, commas removed; None if it has none."""
    match = ANSWER.search(text)
    return match.group(1).replace(",", "") if match else None


def are_equal(answer: str, other: str) -> bool:
    """Whether two final answers are mathematically equal."""
    with ONE_AT_A_TIME:
        from math_verify import verify

        expressions = parsed(answer), parsed(other)
        return call("math_verify.verify", lambda: bool(verify(*expressions, timeout_seconds=None)))


@functools.lru_cache(maxsize=4096)
def parsed(expression: str) -> list[Any]:
    """The expression as math-verify reads it; empty if it cannot."""
    from math_verify import LatexExtractionConfig, parse

    # It warns once that no time limit is set; ANSWER bounds the time.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    config = [LatexExtractionConfig()]
    read: list[Any] = call(
        "math_verify.parse",
        lambda: parse(f"${expression}$", config, "no_fallback", parsing_timeout=None),
    )
    return read
