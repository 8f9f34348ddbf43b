"""`task=gsm8k_tool`: GSM8K for a policy that has a calculator.

Calls have the form of the data's own annotations. An episode:

    prompt        Problem: ...
    action        Natalia sold 48/2 = <<48/2>>
    observation   24
    action         clips in May.\n#### 24

Demonstrations are the data's solutions, whose annotations become calls.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.chat_turns import ObservationRole
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.gsm8k import Gsm8k, answer_of
from rlhf_lab.types import limits
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


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
    where it has none. At most MAX_DIGITS characters either way, all of them ASCII. Never raises.

    An expression has numbers, + - * / // % **, parentheses and signs, with Python's precedence. It
    is read by `ast` and never run: names, calls and strings are refused. No text can take long or
    much memory, so that no process with a time limit is needed, which would make results depend on
    how busy the machine is. A text has at most MAX_LENGTH characters of a small alphabet, and nodes
    nest at most MAX_DEPTH deep, so that there are fewer operations than characters. Every number is
    a fraction of at most MAX_BITS bits in numerator and denominator, so that each operation takes
    microseconds; the size of a power is bounded before it is taken.
    """
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


# A call at the end of an action, and an annotation with the number that the text has after it.
CALL = re.compile(r"<<([^<>]*)>>\s*\Z")
ANNOTATION = re.compile(r"<<([^<>=]*)=[^<>]*>>(-?(?:[0-9]+(?:,[0-9]{3})*)?(?:\.[0-9]+)?)")
ANSWER_MARK = "####"


@dataclass(frozen=True)
class Gsm8kTool(Gsm8k):
    """The problems of task=gsm8k; an action that ends with `<<3*(4+5)>>` calls a calculator, any
    other ends the episode and is judged as in task=gsm8k."""

    name: str = limits.name("gsm8k_tool")
    chat: bool = limits.option(
        False, about="Whether a problem is a user's message in the model's chat template."
    )
    chat_template: str = limits.option(
        "", about="File with the Jinja template of chats; empty takes the tokenizer's own."
    )
    chat_arguments: dict[str, Any] = fields.chat_arguments()
    observation_role: ObservationRole = limits.option(
        ObservationRole.user,
        about="Whose message the calculator's answer is in a chat; many templates have no tool.",
    )
    call_cost: float = limits.coefficient(0.0, about="Reward that each call costs.")
    max_turns: int = fields.turns(10)
    max_turn_tokens: int = fields.turn_tokens(256)
    max_observation_tokens: int = limits.tokens(
        2 * MAX_DIGITS,
        min=MAX_DIGITS,
        why="results have up to as many characters as the least",
        about=(
            "Longest answer of the calculator in tokens, with those that a chat template puts "
            "around it."
        ),
    )
    max_response_tokens: int = fields.episode_tokens(512)

    # A token has a character or more.
    longest_observation: ClassVar[int] = MAX_DIGITS

    def examples(self, split: Split) -> Sequence[Example]:
        """Those of task=gsm8k, as chats where these are chosen."""
        rows = super().examples(split)
        return [as_chat(row) for row in rows] if self.chat else rows

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Bytes, for models that start from random weights."""
        return byte_tokenizer()

    def environment(self) -> CalculatorTool:
        return CalculatorTool(self)

    def demonstration(self, example: Example) -> list[str]:
        """The reference as calls and the rest of it, in at most max_turns turns."""
        return actions_of(example.reference, self.max_turns - 1)


@dataclass
class CalculatorTool:
    """A calculator answers calls; anything else ends the episode, and is judged by the task.

    The last of max_turns takes every action as the answer.
    """

    task: Gsm8kTool
    _example: Example = field(default=Example("", "", ""), init=False)
    _turns: int = field(default=0, init=False)

    def reset(self, example: Example, seed: int) -> str:
        self._example, self._turns = example, 0
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        """The result of a call, or the end of the episode with the score of the action."""
        self._turns += 1
        call = CALL.search(action)
        is_last = not finished or self._turns == self.task.max_turns
        if call is None or is_last or answer_of(action) is not None:
            score = self.task.judge(self._example, action, finished)
            return Turn(reward=score, is_done=True, info={"calls": 0, "errors": 0})
        result = calculate(call[1])
        info = {"calls": 1, "errors": int(result.startswith(ERROR))}
        return Turn(result, -self.task.call_cost, info=info)


def as_chat(row: Example) -> Example:
    """A row whose prompt is a user's message. The template writes what is before an answer."""
    return replace(row, reference=row.reference.strip(), messages=(("user", row.prompt),))


def actions_of(solution: str, max_calls: int) -> list[str]:
    """A solution as actions: its annotations as calls, and the rest of the text.

    The number after an annotation is what the calculator answers, so that no action has it.
    Annotations after the first max_calls, and those whose number the calculator does not give
    (a rounded one), are left out: the text has the number then.
    """
    actions: list[str] = []
    text, start = "", 0
    end = solution.find(ANSWER_MARK)
    for found in ANNOTATION.finditer(solution, 0, end if end >= 0 else len(solution)):
        text += solution[start : found.start()]
        start = found.end()
        if len(actions) < max_calls and is_value(found[2], found[1]):
            actions.append(f"{text}<<{found[1]}>>")
            text = ""
        else:
            text += found[2]
    return [*actions, text + solution[start:]]


def is_value(number: str, expression: str) -> bool:
    """Whether the calculator gives the number that a text has."""
    digits, result = number.replace(",", ""), calculate(expression)
    return bool(digits.strip("-")) and not result.startswith(ERROR) and equal(digits, result)


def equal(one: str, other: str) -> bool:
    """Whether two decimal numbers are the same."""
    return Fraction(one) == Fraction(other)
