"""`task=gsm8k`: grade-school mathematics with the paper's prompt and answer rule."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from rlhf_lab.tasks import fields, math_answer
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.tables import RequiredFields, Table, TableExamples
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

# arXiv:2410.18252, GSM8K: the first match decides.
ANSWER = re.compile(r"#### (\-?[0-9\.\,]+)")


class Verify(StrEnum):
    """When an answer is right: as the same string, or if it is mathematically equal."""

    exact = "exact"
    math_verify = "math_verify"


@dataclass(frozen=True)
class Gsm8k(limits.Limited, key="task"):
    """Grade-school word problems with a number as the answer (arXiv:2110.14168)."""

    name: str = limits.name("gsm8k")
    path: str = limits.option(
        "openai/gsm8k",
        about=(
            "A folder with train and test as .jsonl or .parquet (fields question and answer), or "
            "a hub name."
        ),
    )
    template: str = limits.option(
        "[MATH_TASK] Problem:\n{question}\n\nSolution:",
        about="Text of the prompt, with {question} in it.",
    )
    validation_size: int = fields.held_out(256)
    verify: Verify = limits.option(
        Verify.exact,
        about=(
            "When an answer is right: as the exact string, or by math_verify, to which 1000.0 and "
            "2000/2 are 1000 too."
        ),
    )
    max_prompt_tokens: int = fields.prompt_tokens(512)
    max_response_tokens: int = fields.response_tokens(128)
    has_rule: ClassVar[bool] = True
    is_verifiable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if "{question}" not in self.template:
            raise UserError(
                f"task.template={self.template!r} has no {{question}}: say where the question goes"
            )

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split; validation is the end of the training file."""
        file = "test" if split is Split.test else "train"
        table = load(self.path, file)
        make = functools.partial(example, self.template)
        if split is Split.test:
            return TableExamples(table, file, make)
        if len(table) <= self.validation_size:
            raise UserError(
                f"task.validation_size={self.validation_size}, but {self.path} has only "
                f"{len(table)} training rows: lower it"
            )
        kept = len(table) - self.validation_size
        if split is Split.train:
            return TableExamples(table, file, make, last=kept)
        return TableExamples(table, file, make, first=kept)

    def tokenizer(self) -> Any | None:
        """None: the model brings its own."""
        return None

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """1 if the first `#### answer` of the text is the reference's number, else 0."""
        if self.verify is Verify.math_verify:
            return float(math_answer.equals(text, example.hidden["answer"]))
        return float(answer_of(text) == example.hidden["answer"])

    def answer(self, text: str) -> str | None:
        """What follows the first `####`, as far as `verify` reads it."""
        return math_answer.found(text) if self.verify is Verify.math_verify else answer_of(text)

    def is_same_answer(self, one: str, other: str) -> bool:
        """The same string, or mathematically equal, as `verify` says."""
        is_mathematical = self.verify is Verify.math_verify
        return one == other or (is_mathematical and math_answer.are_equal(one, other))


def answer_of(text: str) -> str | None:
    """The first final answer of a solution, commas and a closing full stop removed."""
    found = ANSWER.search(text)
    return found.group(1).replace(",", "").rstrip(".") if found else None


@functools.cache
def load(path: str, file: str) -> Table:
    """Rows of one file or hub split, each of them looked at once."""
    demand = RequiredFields(("question", "answer"), ("question",))
    table = read_split(path, file, {"name": "main", "split": file}, demand)
    for index, row in enumerate(table):
        example("", row, f"{table.source}:{table.number(index)}")
    return table


def example(template: str, row: dict[str, Any], uid: str) -> Example:
    """One row; its own solution must end in an answer that parses."""
    answer = answer_of(row["answer"])
    if answer is None:
        raise UserError(
            f"{uid}: the field 'answer' has no final answer of the form '#### 42': correct the row"
        )
    prompt = template.replace("{question}", row["question"])
    return Example(uid, prompt, f" {row['answer']}", {"answer": answer})
