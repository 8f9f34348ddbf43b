"""`task=sorting`: the digits of a prompt in their order, such as 3142= -> 1234."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.arithmetic import character_tokenizer
from rlhf_lab.tasks.task_options import GeneratedTask
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split


# GeneratedTask brings the sizes of the splits and reads its rows from `row`.
@dataclass(frozen=True)
class Sorting(GeneratedTask):
    """Digits to sort; only the whole answer counts for the judge."""

    name: str = limits.name("sorting")
    digits: int = limits.count(4, min=3, max=12, about="Digits of a prompt.")
    reference_accuracy: float = limits.share(
        0.7, about="Chance that a reference is right; in the others two digits are swapped."
    )
    max_prompt_tokens: int = fields.prompt_tokens(16)
    max_response_tokens: int = fields.response_tokens(16)
    # Scores from 1 on are right: pass@k can be measured.
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # Refuse what cannot work before the first step, with the key, the value and a remedy.
        for key in ("max_prompt_tokens", "max_response_tokens"):
            if getattr(self, key) < self.digits + 1:
                raise UserError(
                    f"task.{key}={getattr(self, key)}: task.digits={self.digits} needs "
                    f"{self.digits + 1}; choose that or more"
                )

    def row(self, split: Split, index: int) -> Example:
        """One row, the same at any time. No prompt is in two splits: its first digit decides."""
        rng = random.Random(stable_hash(self.world_seed, self.name, split.value, index))
        first = {Split.train: "1234567", Split.validation: "8", Split.test: "9"}[split]
        digits = [rng.choice(first), *(rng.choice("0123456789") for _ in range(self.digits - 1))]
        answer = sorted(digits)
        reference = list(answer)
        if rng.random() > self.reference_accuracy:
            at = rng.randrange(self.digits - 1)
            reference[at : at + 2] = reversed(reference[at : at + 2])
        return Example(
            f"{self.name}/{split.value}/{index}",
            f"{''.join(digits)}=",
            "".join(reference),
            {"answer": "".join(answer)},  # which the judge sees, and no model
        )

    def tokenizer(self) -> Any:
        """One token a character, for models that start from random weights."""
        return character_tokenizer()

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """1 for the sorted digits and the end token, else 0."""
        return float(finished and text == example.hidden["answer"])
