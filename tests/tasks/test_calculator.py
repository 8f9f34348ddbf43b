"""The calculator: results by hand, what it refuses, and that no text is too much for it."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlhf_lab.tasks.gsm8k_tool import (
    DECIMALS,
    ERROR,
    MAX_BITS,
    MAX_DIGITS,
    MAX_LENGTH,
    Refused,
    calculate,
    evaluated,
    size,
)

OPERATORS = ("+", "-", "*", "/", "//", "%", "**")
HOSTILE = [
    "9**9**9**9",
    "(9**9)**(9**9)",
    "10**-99999999999",
    "1/3**64*1/7**64",
    "*".join(["9" * 30] * 3),
    "(" * 50 + "1" + ")" * 50,
    "(" * 300 + "1" + ")" * 300,
    "-" * 99 + "1",
    "2**" * 30 + "2",
    "1+" * 49 + "1",
    "1" * 10**6,
    "1." + "0" * 10**6,
    "__import__('os').system('true')",
    "().__class__.__bases__",
    "[1]*10**9",
    "'a'*10**9",
    "lambda: 0",
    "(1 for _ in 1)",
    "1 if 1 else 2",
    "1;2",
    "1\n2",
    "1\\\n+2",
    "\x00",
    "1\x002",
    "١+٢",  # noqa: RUF001  (digits that Python reads as numbers)
    "𝟏+𝟐",  # noqa: RUF001
    "1e999",
    "0x10",
    "1_000",
    "1j",
    "...",
    "()",
    "(1,)",
    "3(4)",
    "*1",
    "**1",
    "(*1)",
    "%",
    "1<<9",
    "",
    " ",
]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("3*(4+5)", "27"),
        ("48/2", "24"),
        ("12/60", "0.2"),
        (".5*10", "5"),
        ("5.", "5"),
        ("0.1+0.2", "0.3"),
        ("10/3", "3.333333"),
        ("20/3", "6.666667"),
        ("1/3*3", "1"),
        ("-1/3", "-0.333333"),
        ("1/10000000", "0"),
        ("-1/10000000", "0"),
        # Half to even.
        ("0.0000005", "0"),
        ("0.0000015", "0.000002"),
        ("0.1234565", "0.123456"),
        ("-2**2", "-4"),
        ("(-2)**2", "4"),
        ("2**-1", "0.5"),
        ("2**3**2", "512"),
        ("0**0", "1"),
        ("1.5**2", "2.25"),
        ("-7//2", "-4"),
        ("-7%3", "2"),
        ("7.5%2", "1.5"),
        ("1-2-3", "-4"),
        ("8/2/2", "2"),
        ("1--1", "2"),
        ("+-+2", "-2"),
        ("  3 * 4 ", "12"),
        ("0.1000000000000000000000000000000000001*10**37", "error: too large"),
        ("1234567890123*10**7", "12345678901230000000"),
        ("1234567890123*10**8", "error: too large"),
        ("2**64", "18446744073709551616"),
        ("2**65", "error: too large"),
        ("2**65-2**65", "error: too large"),
        ("2**64*2-2**65+1", "error: too large"),
        ("2**64*2**64/2**64/2**64", "1"),
        ("1/0", "error: division by 0"),
        ("1//0", "error: division by 0"),
        ("1%0", "error: division by 0"),
        ("0**-1", "error: division by 0"),
        ("4**0.5", "error: root"),
        ("x+1", "error: unreadable"),
        ("1,000+1", "error: unreadable"),
        ("20%", "error: unreadable"),
        ("2=2", "error: unreadable"),
        ("1+", "error: unreadable"),
        ("007", "error: unreadable"),
        ("1" * 101, "error: too long"),
        ("1+" * 40 + "1", "error: too deep"),
    ],
)
def test_results_by_hand(expression: str, result: str) -> None:
    assert calculate(expression) == result


@st.composite
def sums(draw: st.DrawFn, depth: int = 0) -> tuple[str, Fraction]:
    """An expression of parentheses, with its value by another way."""
    if depth == 3 or draw(st.booleans()):
        number = draw(st.integers(0, 99))
        return str(number), Fraction(number)
    sign = draw(st.sampled_from("+-*/"))
    (left, one), (right, two) = draw(sums(depth + 1)), draw(sums(depth + 1))
    if sign == "/" and not two:
        sign = "+"
    values = {"+": one + two, "-": one - two, "*": one * two, "/": two and one / two}
    return f"({left}{sign}{right})", values[sign]


@given(sums())
def test_every_value_is_exact(drawn: tuple[str, Fraction]) -> None:
    expression, value = drawn
    if len(expression) > MAX_LENGTH:
        assert calculate(expression) == "error: too long"
        return
    assert evaluated(expression) == value
    told = calculate(expression)
    if not told.startswith(ERROR):
        assert abs(Fraction(told) - value) <= Fraction(1, 2 * 10**DECIMALS)


def require_answer(text: str) -> None:
    """An answer comes at once, is short, and is a number or an error."""
    start = time.thread_time()
    told = calculate(text)
    # Of this thread's own work, on any machine: without its bounds the calculator takes hours.
    assert time.thread_time() - start < 60
    assert told.isascii() and 0 < len(told) <= MAX_DIGITS
    if not told.startswith(ERROR):
        Fraction(told)
        assert told not in ("-0", "") and not told.endswith(".")
        assert size(evaluated(text)) <= MAX_BITS


hostile_texts = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="0123456789.+-*/%() ", max_size=MAX_LENGTH),
    # Mostly well formed, of huge numbers and powers.
    st.lists(
        st.one_of(
            st.sampled_from(["9", "2", "0", ".5", "64", "9" * 20, "(", ")", "-"]),
            st.sampled_from(OPERATORS),
        ),
        max_size=40,
    ).map("".join),
    st.lists(st.sampled_from(["9", "0.1", "3"]), min_size=1, max_size=20).flatmap(
        lambda numbers: st.sampled_from(OPERATORS).map(lambda sign: sign.join(numbers))
    ),
)


@settings(max_examples=400, deadline=None)
@given(hostile_texts)
def test_no_text_is_too_much(text: str) -> None:
    require_answer(text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_of_these_is_too_much(text: str) -> None:
    require_answer(text)


@given(st.sampled_from(OPERATORS), st.integers(-(2**300), 2**300), st.integers(-(2**300), 2**300))
@example("**", 2**255, 64)
@example("**", 0, -(2**250))
@example("**", -1, 2**250)
@example("/", 1, 2**255)
def test_no_number_on_the_way_is_too_large(sign: str, left: int, right: int) -> None:
    """Operands may be as large as any result."""
    text = f"({left}){sign}({right})"
    try:
        assert size(evaluated(text)) <= MAX_BITS
    except Refused as refused:
        assert str(refused) in ("too large", "too long", "division by 0")
