"""`task=tldr`: TL;DR summaries as in the N+ paper (arXiv:2403.17031), from the hub or files."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.tables import RequiredFields, Row, TableExamples
from rlhf_lab.tasks.task_options import TaskOptions, require_placeholder
from rlhf_lab.types import limits
from rlhf_lab.types.samples import Example, Split

HUB = "vwxyzjn/summarize_from_feedback_tldr_3_filtered_oai_preprocessing_1706381144"
# N+ detail 2.
TEMPLATE = "SUBREDDIT: r/{subreddit}\n\nTITLE: {title}\n\nPOST: {post}\n\nTL;DR:"


class RowKind(StrEnum):
    """prepared: a row holds a finished query; raw: the parts that the template makes a query of."""

    prepared = "prepared"
    raw = "raw"


@dataclass(frozen=True)
class Tldr(TaskOptions):
    """path: a folder with train, validation and test as .jsonl or .parquet, a file, or a hub name.

    rows: prepared rows have a query that ends in "TL;DR:" (prompt_column) and a response
    (reference_column), as on the hub. From raw rows `template` makes the query, out of
    subreddit_column, title_column and post_column; a post is cut at its last newline until the
    query fits; the response is summary_column. A response begins with one space.
    max_response_tokens: 53 as in all published configs; the paper's table has 128.
    """

    name: str = "tldr"
    path: str = HUB
    rows: RowKind = RowKind.prepared
    prompt_column: str = "query"
    reference_column: str = "reference_response"
    subreddit_column: str = "subreddit"
    title_column: str = "title"
    post_column: str = "post"
    summary_column: str = "summary"
    template: str = TEMPLATE
    max_prompt_tokens: int = limits.tokens(512)
    max_response_tokens: int = limits.tokens(53)
    other_judges: ClassVar[str] = (
        "reward@judge=paper_gold, or reward@judge=reward_model judge.path=<folder>"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_placeholder(self.template, "{post}")

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split."""
        return load(self, split.value)

    def shorter(self, example: Example, excess: int) -> Example | None:
        """Cut the post at its last newline; without one, by a character for each excess token."""
        post = example.hidden.get("post", "")
        if not post:
            return None
        cut = post.rfind("\n")
        shorter = post[:cut] if cut >= 0 else post[:-excess]
        hidden = {**example.hidden, "post": shorter}
        return with_prompt(replace(example, hidden=hidden), self.template)


@functools.cache
def load(task: Tldr, split: str) -> TableExamples:
    """Rows of one file or hub split as examples."""
    if task.rows is RowKind.prepared:
        required = RequiredFields(
            (task.prompt_column, task.reference_column), (task.prompt_column,)
        )
        make = functools.partial(prepared, task)
    else:
        parts = (task.subreddit_column, task.title_column, task.post_column)
        required = RequiredFields((*parts, task.summary_column), (task.post_column,))
        make = functools.partial(raw, task)
    return TableExamples(read_split(task.path, split, {"split": split}, required), split, make)


def prepared(task: Tldr, row: Row, uid: str) -> Example:
    """The example of a row with a query."""
    return Example(uid, row[task.prompt_column], response(row[task.reference_column]))


def raw(task: Tldr, row: Row, uid: str) -> Example:
    """The example of a row of parts; they are stored so that the post can be cut."""
    hidden = {
        "subreddit": row[task.subreddit_column],
        "title": row[task.title_column],
        "post": row[task.post_column],
    }
    return with_prompt(Example(uid, "", response(row[task.summary_column]), hidden), task.template)


def with_prompt(example: Example, template: str) -> Example:
    """The example with a query: the template with the example's parts, substituted in one pass."""
    prompt = re.sub(r"\{(subreddit|title|post)\}", lambda m: example.hidden[m[1]], template)
    return replace(example, prompt=prompt)


def response(text: str) -> str:
    """The text with one leading space, without an end token: stages append it (N+ detail 3)."""
    return f" {text.strip().removesuffix('<|endoftext|>').strip()}"
