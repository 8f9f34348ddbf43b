"""A calculator for texts that a policy wrote: exact arithmetic, bounded by construction.

An expression has numbers, + - * / // % **, parentheses and signs, with Python's precedence. It is
read by `ast` and never run: only the kinds of nodes below are known, and no name, call or string is
among them. No text can take long or much memory, so that no process of its own is needed, whose
time limit would make results depend on how busy the machine is:

- A text has at most MAX_LENGTH characters of a small alphabet, and nodes nest at most MAX_DEPTH
  deep, so that there are fewer operations than characters.
- Every number on the way is a fraction whose numerator and denominator have at most MAX_BITS bits,
  so that each operation takes microseconds. The size of a power is bounded before it is taken.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

MAX_LENGTH = 100
MAX_DEPTH = 32
MAX_BITS = 256
MAX_EXPONENT = 64
# Decimals of a result; those that have more are rounded to so many, half to even.
DECIMALS = 6
# Characters of the longest result.
MAX_DIGITS = 20
ERROR = "error: "
ALPHABET = re.compile(r"[0-9.+\-*/%() ]*")

BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
UNARY: dict[type[ast.unaryop], Callable[[Fraction], Fraction]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class Refused(ValueError):
    """What the calculator does not calculate, in a few words."""


def calculate(expression: str) -> str:
    """The value of an expression such as `3*(4+5)`, as a decimal number; `error: ` and the reason
    where it has none. At most MAX_DIGITS characters either way, all of them ASCII. Never raises."""
    try:
        return shown(evaluated(expression))
    except Refused as refused:
        return f"{ERROR}{refused}"


def evaluated(expression: str) -> Fraction:
    """The exact value of an expression. Raises Refused where it has none or is too large."""
    text = expression.strip(" ")
    if len(text) > MAX_LENGTH:
        raise Refused("too long")
    if not ALPHABET.fullmatch(text):
        raise Refused("unreadable")
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise Refused("unreadable") from error
    return Expression(text).value(tree.body)


class Expression:
    """The values of the nodes of a parsed text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr, depth: int = 0) -> Fraction:
        """The exact value of a node. Raises Refused."""
        if depth == MAX_DEPTH:
            raise Refused("too deep")
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.UnaryOp) and type(node.op) in UNARY:
            return UNARY[type(node.op)](self.value(node.operand, depth + 1))
        if isinstance(node, ast.BinOp):
            left, right = (self.value(side, depth + 1) for side in (node.left, node.right))
            return bounded(combined(node.op, left, right))
        raise Refused("unreadable")

    def _number(self, node: ast.Constant) -> Fraction:
        """A number as it is written, of which a float would lose digits."""
        digits = self._text[node.col_offset : node.end_col_offset]
        if not isinstance(node.value, int | float):
            raise Refused("unreadable")
        return bounded(Fraction(digits))


def combined(op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    """The value of one operation."""
    if isinstance(op, ast.Pow):
        return power(left, right)
    if type(op) not in BINARY:
        raise Refused("unreadable")
    try:
        return Fraction(BINARY[type(op)](left, right))
    except ZeroDivisionError as error:
        raise Refused("division by 0") from error


def power(base: Fraction, exponent: Fraction) -> Fraction:
    """A power with a whole exponent."""
    if exponent.denominator != 1:
        raise Refused("root")
    if not base and exponent < 0:
        raise Refused("division by 0")
    # Of bits b, a power e has at most b * e.
    if abs(exponent) > MAX_EXPONENT or size(base) * abs(exponent) > 2 * MAX_BITS:
        raise Refused("too large")
    return Fraction(base ** int(exponent))


def size(number: Fraction) -> int:
    """The bits of the longer of numerator and denominator."""
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def bounded(number: Fraction) -> Fraction:
    """The number. Raises Refused for one that is too large, or too fine."""
    if size(number) > MAX_BITS:
        raise Refused("too large")
    return number


def shown(number: Fraction) -> str:
    """A number in decimals, without zeros at its end. Raises Refused for one that is too long."""
    scaled = round(number * Fraction(10) ** DECIMALS)
    digits = f"{abs(scaled):0{DECIMALS + 1}d}"
    decimals = digits[-DECIMALS:].rstrip("0")
    text = "-" * (scaled < 0) + digits[:-DECIMALS] + (f".{decimals}" if decimals else "")
    if len(text) > MAX_DIGITS:
        raise Refused("too large")
    return text
