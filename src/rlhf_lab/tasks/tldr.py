"""`task=tldr`: the real TL;DR of the N+ paper, from the hub or from a user's own JSONL."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.tasks.hub import read_split
from rlhf_lab.types import Example, Split, UserError

HUB = "vwxyzjn/summarize_from_feedback_tldr_3_filtered_oai_preprocessing_1706381144"


@dataclass(frozen=True)
class Tldr:
    """path: a folder with train.jsonl, validation.jsonl and test.jsonl, or a hub name.

    The hub's rows are prepared already: the query ends in "TL;DR:", was shortened at a newline to
    512 tokens, and the response begins with a space (N+ details 2 and 3). max_response_tokens: 53
    as in all published configs; the paper's table says 128.
    """

    name: str = "tldr"
    path: str = HUB
    prompt_column: str = "query"
    reference_column: str = "reference_response"
    max_prompt_tokens: int = 512
    max_response_tokens: int = 53
    has_rule: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for key in ("max_prompt_tokens", "max_response_tokens"):
            if getattr(self, key) < 1:
                raise UserError(f"task.{key}={getattr(self, key)}: choose 1 or more")

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split."""
        return load(self.path, split.value, self.prompt_column, self.reference_column)

    def tokenizer(self) -> Any | None:
        """None: the model brings its own."""
        return None

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """Refused: a reward model judges this task."""
        raise UserError(
            "task=tldr has no rule of its own: pass reward@judge=paper_gold, or "
            "reward@judge=reward_model judge.path=<folder>"
        )


@functools.cache
def load(path: str, split: str, prompt_column: str, reference_column: str) -> tuple[Example, ...]:
    """Rows of one file or hub split as examples; every reference begins with one space."""
    columns = (prompt_column, reference_column)
    rows, source = read_split(path, f"{split}.jsonl", {"split": split}, columns)
    return tuple(
        Example(
            f"{source}:{number}",
            row[prompt_column],
            f" {row[reference_column].removesuffix('<|endoftext|>').strip()}",
        )
        for number, row in enumerate(rows, start=1)
    )
