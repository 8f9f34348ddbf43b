"""`task=arithmetic`: generated sums, differences and products; a policy learns them in seconds."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>")
OPERATIONS = "+-*"
MAX_DRAWS = 2000


@dataclass(frozen=True)
class Arithmetic(GeneratedTask):
    """A prompt such as `12+7*3=`, products first; only the exact answer counts."""

    name: str = limits.name("arithmetic")
    operations: str = limits.option(
        "+-", about="Operators that the terms of a prompt are joined by, drawn from +, - and *."
    )
    digits: int = limits.count(1, max=50, about="Most digits of a number in a prompt.")
    terms: int = limits.count(2, min=2, max=50, about="Numbers in a prompt.")
    reference_accuracy: float = limits.share(
        0.7,
        about=(
            "Chance that a reference answer is right: the others have one wrong digit, so that a "
            "policy can beat at most 1 - reference_accuracy of the references."
        ),
    )
    max_prompt_tokens: int = fields.prompt_tokens(16)
    max_response_tokens: int = fields.response_tokens(8)
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        used = set(self.operations)
        if not used or not used <= set(OPERATIONS) or len(used) < len(self.operations):
            raise UserError(
                f"task.operations={self.operations!r}: choose some of {OPERATIONS}, each once"
            )
        self._refuse_short_limits()

    def _refuse_short_limits(self) -> None:
        largest = 10**self.digits - 1
        most = largest**self.terms if "*" in self.operations else largest * self.terms
        # A near miss may carry into one more digit; a sign and the end token.
        needed = {
            "max_prompt_tokens": self.terms * (self.digits + 1),
            "max_response_tokens": len(str(most)) + 3,
        }
        for key, tokens in needed.items():
            if getattr(self, key) < tokens:
                raise UserError(
                    f"task.{key}={getattr(self, key)}: with task.digits={self.digits} and "
                    f"task.terms={self.terms} there are up to {tokens} tokens; choose that or more"
                )

    def row(self, split: Split, index: int) -> Example:
        """One row of a split. Rows may repeat, but never those of other splits."""
        rng = random.Random(stable_hash(self.world_seed, "arithmetic", split.value, index))
        numbers, operations = draw_prompt(self, split, rng)
        answer = value(numbers, operations)
        is_right = rng.random() < self.reference_accuracy
        reference = answer if is_right else near_miss(answer, rng)
        return Example(
            f"arithmetic/{split.value}/{index}",
            render(numbers, operations),
            str(reference),
            {"answer": str(answer)},
        )

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return character_tokenizer()

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """1 if the text is the answer, digit by digit, and ended with the end token; else 0."""
        return float(finished and text == example.hidden["answer"])

    def answer(self, text: str) -> str | None:
        """The whole text, as `judge` reads it."""
        return text or None


def draw_prompt(task: Arithmetic, split: Split, rng: random.Random) -> tuple[list[int], str]:
    """Numbers and the operations between them, drawn until the prompt belongs to the split."""
    for _ in range(MAX_DRAWS):
        numbers = [rng.randrange(10**task.digits) for _ in range(task.terms)]
        operations = "".join(rng.choice(task.operations) for _ in range(task.terms - 1))
        if split_of(render(numbers, operations)) is split:
            return numbers, operations
    raise UserError(
        f"task.digits={task.digits}, task.terms={task.terms}, task.operations={task.operations!r}: "
        f"too few prompts for split {split.value}; choose more digits"
    )


def render(numbers: Sequence[int], operations: str) -> str:
    rest = (f"{sign}{number}" for sign, number in zip(operations, numbers[1:], strict=True))
    return f"{numbers[0]}{''.join(rest)}="


def split_of(prompt: str) -> Split:
    """The split of a prompt, independent of sizes and seeds: 90, 5 and 5 percent."""
    bucket = stable_hash("arithmetic", prompt) % 20
    return {18: Split.validation, 19: Split.test}.get(bucket, Split.train)


def value(numbers: Sequence[int], operations: str) -> int:
    """The value of the prompt, products first."""
    summands = [numbers[0]]
    for sign, number in zip(operations, numbers[1:], strict=True):
        if sign == "*":
            summands[-1] *= number
        else:
            summands.append(number if sign == "+" else -number)
    return sum(summands)


def near_miss(answer: int, rng: random.Random) -> int:
    """Another number: one of the answer's digits is off by one."""
    position = rng.randrange(len(str(abs(answer))))
    return answer + int(rng.choice((-1, 1)) * 10**position)


@functools.cache
def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, decoded without spaces; padding and end tokens differ.

    There is no unknown token: any other character is refused by the tokenizer itself.
    """
    # The process of a time-limited rule imports this module, but no tokenizer.
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    symbols = [*SPECIAL, *"0123456789", *OPERATIONS, "="]
    tokenizer = Tokenizer(WordLevel({symbol: number for number, symbol in enumerate(symbols)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )
