"""`task=gsm8k`: grade-school mathematics with the paper's prompt and answer rule."""

from __future__ import annotations

import functools
import logging
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from rlhf_lab.runs.foreign import call
from rlhf_lab.tasks import fields
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.tasks.tables import RequiredFields, Row, Table, check_rows, split_examples
from rlhf_lab.tasks.task_options import TaskOptions, require_placeholder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

# arXiv:2410.18252, GSM8K: the first match decides.
ANSWER = re.compile(r"#### (\-?[0-9\.\,]+)")
# A final answer of which that takes the beginning alone: more digits follow in the same line.
MORE = re.compile(r"#### \-?[0-9.,]+[^0-9.,\n][^\n]*?[0-9][^\n]*")


class Verify(StrEnum):
    """exact: a right answer is the same string; math_verify: it is mathematically equal."""

    exact = "exact"
    math_verify = "math_verify"


@dataclass(frozen=True)
class Gsm8k(TaskOptions):
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
        require_placeholder(self.template, "{question}")

    def require_usable(self, key: str) -> None:
        if self.verify is Verify.math_verify:
            require_package("math_verify", "math", f"{key}.verify=math_verify")

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split; validation is the end of the training file."""
        load_file = functools.partial(load, self.path)
        make = functools.partial(example, self.template)
        return split_examples(split, load_file, make, self.validation_size, self.path)

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """1 if the first `#### answer` in the text is the reference's number, else 0."""
        if self.verify is Verify.math_verify:
            return float(is_correct(text, example.hidden["answer"]))
        return float(answer_of(text) == example.hidden["answer"])

    def answer(self, text: str) -> str | None:
        """The answer after the first `####`, as `verify` reads it."""
        return math_answer_of(text) if self.verify is Verify.math_verify else answer_of(text)

    def is_same_answer(self, one: str, other: str) -> bool:
        is_mathematical = self.verify is Verify.math_verify
        return one == other or (is_mathematical and are_equal(one, other))


def answer_of(text: str) -> str | None:
    """The first final answer of a solution, commas and a closing full stop removed."""
    match = ANSWER.search(text)
    return match.group(1).replace(",", "").rstrip(".") if match else None


@functools.cache
def load(path: str, file: str) -> Table:
    """Checked rows of one file or hub split."""
    required = RequiredFields(("question", "answer"), ("question",))
    table = read_split(path, file, {"name": "main", "split": file}, required)
    return check_rows(table, functools.partial(example, ""))


def example(template: str, row: Row, uid: str) -> Example:
    """One row. Raises UserError if its solution does not end in a number, or in more than one: of
    3/7, 1 200 or 1.5e+06 the rule of the task would take the beginning for the answer."""
    answer, rest = answer_of(row["answer"]), MORE.search(row["answer"])
    if answer is None:
        raise UserError(
            f"{uid}: the field 'answer' has no final answer of the form '#### 42': correct the row"
        )
    if rest:
        raise UserError(
            f"{uid}: the field 'answer' has the final answer {rest.group()!r}, which is not one "
            "number: write it as one, such as '#### 1200' or '#### 0.25', or delete the row"
        )
    prompt = template.replace("{question}", row["question"])
    return Example(uid, prompt, f" {row['answer']}", {"answer": answer})


NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30})(?!\d)"
SIGNED = rf"[-+]?{NUMBER}"
FOLLOWED = r"\(|, *\d| *\^| *(?:\*\*|[-+*/]) *[\d.(\\]"
MATH_ANSWER = re.compile(
    rf"#### *+\\?\$?+ *+([-+]?\\[dt]?frac\{{{SIGNED}\}}\{{{SIGNED}\}}"
    rf"|{SIGNED}(?: *[-+*/] *{NUMBER}){{0,7}})(?!{FOLLOWED})"
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
    final = math_answer_of(text)
    return final is not None and are_equal(answer, final)


def math_answer_of(text: str) -> str | None:
    """The first final answer of a solution, commas removed; None if it has none."""
    match = MATH_ANSWER.search(text)
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

    # It warns once that no time limit is set; MATH_ANSWER bounds the time.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    config = [LatexExtractionConfig()]
    read: list[Any] = call(
        "math_verify.parse",
        lambda: parse(f"${expression}$", config, "no_fallback", parsing_timeout=None),
    )
    return read
