"""`task=tldr`: TL;DR summaries as in the N+ paper (arXiv:2403.17031), from the hub or files."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.tasks import fields
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
    """Reddit posts and their summaries; a post is cut at its last newline until the query fits,
    and a response begins with one space."""

    name: str = limits.name("tldr")
    path: str = limits.option(
        HUB,
        about=(
            "A folder with train, validation and test as .jsonl or .parquet, one such file, or a "
            "hub name."
        ),
    )
    rows: RowKind = limits.option(
        RowKind.prepared,
        about=(
            "Whether rows have finished queries that end in TL;DR: (prepared), or posts that "
            "template makes queries of (raw)."
        ),
    )
    prompt_column: str = limits.option("query", about="Column of the query, with rows=prepared.")
    reference_column: str = limits.option(
        "reference_response", about="Column of the reference response, with rows=prepared."
    )
    subreddit_column: str = limits.option(
        "subreddit", about="Column of the subreddit, with rows=raw."
    )
    title_column: str = limits.option("title", about="Column of the title, with rows=raw.")
    post_column: str = limits.option("post", about="Column of the post, with rows=raw.")
    summary_column: str = limits.option(
        "summary", about="Column of the reference summary, with rows=raw."
    )
    template: str = limits.option(
        TEMPLATE,
        about="Text of the query, with {subreddit}, {title} and {post} in it, for rows=raw.",
    )
    max_prompt_tokens: int = fields.prompt_tokens(512)
    max_response_tokens: int = fields.response_tokens(
        53, source="published configs of arXiv:2410.18252; its table has 128"
    )
    other_judges: ClassVar[str] = (
        "reward@judge=paper_gold, or reward@judge=reward_model judge.path=<folder>"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_placeholder(self.template, "{post}")

    def examples(self, split: Split) -> Sequence[Example]:
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
