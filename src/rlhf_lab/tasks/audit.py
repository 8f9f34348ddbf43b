"""Audit the splits of a task for `rlhf-lab data`: lengths, empty values and repeated rows.

Rows are read one at a time; only 64-bit hashes of prompts stay in memory, never the texts.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.tasks.fingerprints import fingerprint, normalised
from rlhf_lab.tasks.lengths import Lengths, NameOf, Repeats
from rlhf_lab.tasks.prompts import Read, Render, Shorten, fit, text_of
from rlhf_lab.tasks.tables import TableExamples
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

IDS = ("id", "uid")
TEXTS = ("prompt", "reference")
Advance = Callable[[], None]


@dataclass(frozen=True)
class DataOptions(limits.Limited, key="data"):
    """What `rlhf-lab data` looks at."""

    ngram: int = limits.count(
        13, least=2, most=10**6, about="Words in a row that make two prompts overlap."
    )
    common: int = limits.count(
        10, about="N-grams in more train rows than this are common phrases and count for nothing."
    )
    limit: int = limits.count(0, least=0, about="Rows of each split that are examined; 0 is all.")
    tokens: bool = limits.option(
        True,
        about=(
            "Whether lengths are counted in tokens too, if the model's tokenizer is there; false "
            "counts characters and words."
        ),
    )
    examples: int = limits.count(
        3, least=0, about="Prompts shown as the model reads them, and examples of each finding."
    )
    out: str = limits.option(
        "",
        about=(
            "New folder for a copy whose train rows repeat nothing, share nothing with validation "
            "and test, and fit task.max_prompt_tokens; empty writes none."
        ),
    )
    start: int = limits.count(
        0, least=0, about="Position in the run's order of the first prompt that show prints."
    )
    show: int = limits.count(
        0,
        least=0,
        about="Print so many prompts in a run's order instead of the report; 0 prints the report.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out and self.limit:
            raise UserError(
                f"data.limit={self.limit} with data.out={self.out}: the copy would end there; pass "
                "data.limit=0"
            )


@dataclass
class SplitAudit:
    """The findings about one split. Sets hold row numbers within the split."""

    split: Split
    rows: int
    lengths: dict[str, Lengths]
    same: Repeats
    near: Repeats
    ids: Repeats
    empty: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    shortened: int = 0
    repeated: set[int] = field(default_factory=set)
    too_long: set[int] = field(default_factory=set)

    def repeats(self, index: int, prompt: str, name_of: NameOf) -> bool:
        """Whether an earlier row has this prompt, or nearly the same. Each repeat counts once."""
        if self.same.add(fingerprint(prompt), index, name_of):
            return True
        return self.near.add(normalised(prompt), index, name_of)


@dataclass(frozen=True)
class Limits:
    """How prompts and references become tokens, and the most that they may have.

    read, answer: None where there is no tokenizer. answer: of a reference with its end token.
    """

    read: Read | None
    shorten: Shorten
    prompt: int
    response: int
    render: Render = text_of
    answer: Read | None = None


def row_name(examples: Sequence[Example], index: int) -> str:
    """The name of a row in a report: its line in the file, if there is one, or its uid."""
    if isinstance(examples, TableExamples):
        return examples.row_name(index)
    return examples[index].uid


def first_rows(examples: Sequence[Example], limit: int) -> Iterator[tuple[int, Example]]:
    """The rows of a split with their numbers, up to the limit if it is not 0."""
    for index in range(min(limit or len(examples), len(examples))):
        yield index, examples[index]


def audit_split(
    split: Split,
    examples: Sequence[Example],
    limits: Limits,
    options: DataOptions,
    advance: Advance,
) -> SplitAudit:
    """Read every row of a split once."""
    units = ("characters",) if limits.read else ("characters", "words")
    kinds = [f"{text} {unit}" for text in TEXTS for unit in units]
    audit = SplitAudit(
        split,
        min(options.limit or len(examples), len(examples)),
        {kind: Lengths() for kind in kinds},
        Repeats(options.examples),
        Repeats(options.examples),
        Repeats(options.examples),
    )
    if limits.read:
        audit.lengths["prompt tokens"] = Lengths(limits.prompt)
        audit.lengths["reference tokens"] = Lengths(limits.response)

    name_of = functools.partial(row_name, examples)

    for index, example in first_rows(examples, options.limit):
        measure(audit, index, example, limits)
        if audit.repeats(index, example.prompt, name_of):
            audit.repeated.add(index)
        if isinstance(examples, TableExamples):
            read_columns(audit, index, examples.row(index), name_of)
        advance()
    return audit


def measure(audit: SplitAudit, index: int, example: Example, limits: Limits) -> None:
    """Add the lengths of one row."""
    texts = dict(zip(TEXTS, (example.prompt, example.reference), strict=True))
    for name, text in texts.items():
        audit.lengths[f"{name} characters"].add(len(text))
    if not limits.read:
        for name, text in texts.items():
            audit.lengths[f"{name} words"].add(len(text.split()))
        return
    num = len(limits.read(example))
    audit.lengths["prompt tokens"].add(num)
    if limits.answer:
        audit.lengths["reference tokens"].add(len(limits.answer(example)))
    if num > limits.prompt:
        _, tokens = fit(example, limits.read, limits.shorten, limits.prompt)
        if len(tokens) > limits.prompt:
            audit.too_long.add(index)
        else:
            audit.shortened += 1


def read_columns(audit: SplitAudit, index: int, row: Mapping[str, Any], name_of: NameOf) -> None:
    """Count the empty values of a row, and its id. A new column was empty in all rows before."""
    known = set(audit.columns)
    for name in row:
        if name not in known:
            audit.columns.append(name)
            audit.empty[name] = index
    for name in audit.columns:
        audit.empty[name] += is_empty(row.get(name))
    for name in IDS:
        if not is_empty(row.get(name)):
            audit.ids.add(fingerprint(str(row[name])), index, name_of)
            return


def is_empty(value: Any) -> bool:
    """Whether a value is missing, or an empty or blank text."""
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())
