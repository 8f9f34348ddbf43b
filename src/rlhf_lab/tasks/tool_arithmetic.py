"""`task=tool_arithmetic`: prompts of arithmetic, for a policy that has a calculator.

An episode:

    prompt        12+7*3=
    action        7*3=
    observation   21;
    action        12+21=
    observation   33;
    action        33

A result ends with a mark: the policy's next digits would else seem to be more of it.
"""

from __future__ import annotations

import copy
import functools
import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.arithmetic import Arithmetic, character_tokenizer, render, value
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CALL = re.compile(r"(-?[0-9]+)([+*-])(-?[0-9]+)=")
ERROR = "!"
MARK = ";"
# Products of numbers as long as this are still short enough for Python to write (4300 digits).
MOST_DISPLAYED = 1000
# With as many digits and terms, every value fits the longest display.
MOST_DIGITS = MOST_TERMS = 30


@dataclass(frozen=True)
class ToolArithmetic(Arithmetic):
    """The prompts of task=arithmetic; an action that ends with `=` calls a calculator, any other
    is the answer."""

    name: str = limits.name("tool_arithmetic")
    operations: str = limits.option(
        "+*", about="Operators that the terms of a prompt are joined by, drawn from +, - and *."
    )
    digits: int = limits.count(2, max=MOST_DIGITS, about="Most digits of a number in a prompt.")
    terms: int = limits.count(3, min=2, max=MOST_TERMS, about="Numbers in a prompt.")
    tool_rate: float = limits.share(
        0.5,
        about=(
            "Chance that a demonstration calculates its answer step by step; the others answer "
            "straight away, with the reference."
        ),
    )
    call_cost: float = limits.coefficient(0.02, about="Reward that each call costs.")
    max_turns: int = fields.turns(4)
    max_turn_tokens: int = fields.turn_tokens(12)
    max_observation_tokens: int = limits.count(
        12,
        max=MOST_DISPLAYED,
        about=(
            "Longest answer of the calculator, its mark included; results that are longer are "
            "errors."
        ),
    )
    max_response_tokens: int = fields.episode_tokens(40)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tool_rate and self.max_turns < self.terms:
            raise UserError(
                f"task.max_turns={self.max_turns}: demonstrations with task.terms={self.terms} "
                f"take up to {self.terms} turns; choose that or more, or task.tool_rate=0"
            )
        for key, tokens in self._needed_tokens().items():
            if getattr(self, key) < tokens:
                raise UserError(
                    f"task.{key}={getattr(self, key)}: with task.digits={self.digits} and "
                    f"task.terms={self.terms} demonstrations need up to {tokens}; choose that or "
                    "more"
                )

    def _needed_tokens(self) -> dict[str, int]:
        number = len(str(self._largest_value(self.terms)))
        # A near miss may carry into one more digit; a sign and the end token.
        answer = number + 3
        if not self.tool_rate:
            return {"max_turn_tokens": answer}
        # A call has two numbers, a sign, the operation, `=` and the end token.
        call = len(str(self._largest_value(self.terms - 1))) + self.digits + 4
        return {
            "max_turn_tokens": max(answer, call),
            "max_observation_tokens": number + 1 + len(MARK),
            "max_response_tokens": (self.terms - 1) * call + answer,
        }

    def _largest_value(self, terms: int) -> int:
        largest = 10**self.digits - 1
        return int(largest**terms) if "*" in self.operations else largest * terms

    def row(self, split: Split, index: int) -> Example:
        """One row of a split: that of task=arithmetic with the same numbers."""
        return replace(super().row(split, index), uid=f"tool_arithmetic/{split.value}/{index}")

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return tool_tokenizer()

    def environment(self) -> CalculatorEnvironment:
        return CalculatorEnvironment(
            self.max_turns, self.call_cost, self.max_observation_tokens - len(MARK)
        )

    def demonstration(self, example: Example) -> list[str]:
        """The calls that lead to the answer and the answer, or the reference straight away."""
        key = (self.world_seed, "tool_arithmetic", "demonstration", example.uid)
        if random.Random(stable_hash(*key)).random() < self.tool_rate:
            return [*calls_of(example.prompt), example.hidden["answer"]]
        return [example.reference]


@dataclass
class CalculatorEnvironment:
    """A calculator answers calls; anything else is the answer.

    The last of max_turns takes every action as the answer. call_cost: reward that a call costs.
    width: characters of the display.
    """

    max_turns: int
    call_cost: float
    width: int
    _answer: str = field(default="", init=False)
    _turns: int = field(default=0, init=False)

    def reset(self, example: Example, seed: int) -> str:
        self._answer, self._turns = example.hidden["answer"], 0
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        """The result of a call, or the end of the episode: 1 for the exact answer, else 0."""
        self._turns += 1
        if not action.endswith("=") or not finished or self._turns == self.max_turns:
            is_right = finished and action == self._answer
            return Turn(reward=float(is_right), is_done=True, info={"calls": 0, "errors": 0})
        result = calculate(action, self.width)
        info = {"calls": 1, "errors": int(result == ERROR)}
        return Turn(result + MARK, -self.call_cost, info=info)


def calculate(call: str, width: int) -> str:
    """The result of a call such as `7*3=`; `!` if it cannot be read, or if a number of it has more
    than `width` characters."""
    match = CALL.fullmatch(call)
    if match is None or max(len(match[1]), len(match[3])) > width:
        return ERROR
    result = str(value([int(match[1]), int(match[3])], match[2]))
    return result if len(result) <= width else ERROR


def calls_of(prompt: str) -> list[str]:
    """The calls that lead to a prompt's value, products first; the last has the value itself."""
    numbers = [int(digits) for digits in re.findall("[0-9]+", prompt)]
    operations = re.findall("[+*-]", prompt)
    calls = []
    while operations:
        position = operations.index("*") if "*" in operations else 0
        operation = operations.pop(position)
        pair = numbers[position : position + 2]
        calls.append(render(pair, operation))
        numbers[position : position + 2] = [value(pair, operation)]
    return calls


@functools.cache
def tool_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of arithmetic, its characters with the same numbers, and those of answers."""
    from tokenizers.models import WordLevel

    tokenizer = copy.deepcopy(character_tokenizer())
    symbols: dict[str, int] = tokenizer.get_vocab()
    new = {symbol: len(symbols) + number for number, symbol in enumerate((ERROR, MARK))}
    tokenizer.backend_tokenizer.model = WordLevel(symbols | new)
    return tokenizer
