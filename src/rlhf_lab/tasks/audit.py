"""Audit the splits of a task for `rlhf-lab data`: lengths, empty values, repeats and overlap.

Rows are read one at a time; only 64-bit hashes of prompts stay in memory, never the texts.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.tasks.prompts import Read, Render, Shorten, fit, text_of
from rlhf_lab.tasks.tables import TableExamples
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

# Arithmetic signs carry meaning, other punctuation does not.
WORD = re.compile(r"[^\W_]+|[+\-*/=<>^%]")


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation."""
    return WORD.findall(text.casefold())


def fingerprint(text: str) -> int:
    """The hash of a text, the same in every process."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def normalised(text: str) -> int:
    """The hash of a text regardless of case, spacing and punctuation."""
    return fingerprint(" ".join(words(text)) or text)


def ngrams(text: str, n: int) -> Iterator[tuple[int, str]]:
    """Every n-gram of words: its hash and its text."""
    every = words(text)
    for start in range(len(every) - n + 1):
        gram = " ".join(every[start : start + n])
        yield fingerprint(gram), gram


# The name of a row, by its number, in a report.
NameOf = Callable[[int], str]


class Lengths:
    """The distribution of text lengths, as a count for each length."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self._counts: Counter[int] = Counter()

    def add(self, length: int) -> None:
        self._counts[length] += 1

    @property
    def num(self) -> int:
        return self._counts.total()

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self._counts.items()) / self.num

    @property
    def num_over(self) -> int:
        """Texts longer than the limit."""
        return sum(count for length, count in self._counts.items() if length > self.limit)

    def quantile(self, share: float) -> int:
        """The smallest length that at least this share of the texts do not exceed."""
        # 0.55 of 200 is a little more than 110 in floating point.
        needed = share * self.num - 1e-6
        seen = 0
        for length in sorted(self._counts):
            seen += self._counts[length]
            if seen >= needed:
                return length
        raise AssertionError("no lengths")


@dataclass
class Repeats:
    """Rows equal to an earlier one; `named` are the first few, each with the earlier one."""

    most_named: int
    num: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, index: int, name_of: NameOf) -> bool:
        """Whether an earlier row has this key."""
        first = self._seen.setdefault(key, index)
        if first == index:
            return False
        self.num += 1
        if len(self.named) < self.most_named:
            self.named.append((name_of(index), name_of(first)))
        return True


IDS = ("id", "uid")
TEXTS = ("prompt", "reference")
Advance = Callable[[], None]


@dataclass(frozen=True)
class DataOptions(limits.OptionGroup, key="data"):
    """What `rlhf-lab data` looks at."""

    ngram: int = limits.count(
        13, min=2, max=10**6, about="Words in a row that make two prompts overlap."
    )
    common: int = limits.count(
        10, about="N-grams in more train rows than this are common phrases and count for nothing."
    )
    limit: int = limits.count(0, min=0, about="Rows of each split that are examined; 0 is all.")
    tokens: bool = limits.option(
        True,
        about=(
            "Whether lengths are counted in tokens too, if the model's tokenizer is there; false "
            "counts characters and words."
        ),
    )
    examples: int = limits.count(
        3, min=0, about="Prompts shown as the model reads them, and examples of each finding."
    )
    out: str = limits.option(
        "",
        about=(
            "New folder for a copy whose train rows repeat nothing, share nothing with validation "
            "and test, and fit task.max_prompt_tokens; empty writes none."
        ),
    )
    start: int = limits.count(
        0, min=0, about="Position in the run's order of the first prompt that show prints."
    )
    show: int = limits.count(
        0,
        min=0,
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


@dataclass(frozen=True)
class Overlap:
    """Prompts of a split that share an n-gram, or all of their words, with prompts of another.

    named: the first few, with a row of the other split and the shared words. rows: those of the
    other split.
    """

    of: Split
    against: Split
    total: int
    num: int
    num_equal: int
    named: list[tuple[str, str, str]]
    rows: set[int]


class Index:
    """The n-grams of one split, each with at most `common` + 1 rows of another that contain it."""

    def __init__(self, examples: Sequence[Example], options: DataOptions) -> None:
        self._options = options
        self._hits: dict[int, list[int]] = {}
        self._equal: dict[int, list[int]] = {}
        for _, example in first_rows(examples, options.limit):
            self._equal.setdefault(normalised(example.prompt), [])
            for gram, _ in ngrams(example.prompt, options.ngram):
                self._hits.setdefault(gram, [])

    def add(self, index: int, example: Example) -> None:
        """Look up the n-grams of a row of the other split."""
        same = self._equal.get(normalised(example.prompt))
        if same is not None:
            same.append(index)
        for gram, _ in ngrams(example.prompt, self._options.ngram):
            rows = self._hits.get(gram)
            if rows is not None and len(rows) <= self._options.common and index not in rows[-1:]:
                rows.append(index)

    def shared(self, example: Example) -> tuple[bool, list[tuple[list[int], str]]]:
        """Whether a prompt is in the other split too; and rows there, with the shared words."""
        equal = self._equal[normalised(example.prompt)]
        hits = [(equal, "all of its words")] if equal else []
        for gram, text in ngrams(example.prompt, self._options.ngram):
            if 1 <= len(self._hits[gram]) <= self._options.common:
                hits.append((self._hits[gram], text))
        return bool(equal), hits


def overlap(
    of: Split,
    against: Split,
    splits: Mapping[Split, Sequence[Example]],
    options: DataOptions,
    advance: Advance,
) -> Overlap:
    """Compare two splits: the n-grams of the first are in memory, the second is read row by row."""
    index = Index(splits[of], options)
    for number, example in first_rows(splits[against], options.limit):
        index.add(number, example)
        advance()
    named: list[tuple[str, str, str]] = []
    rows: set[int] = set()
    num = num_equal = total = 0
    for number, example in first_rows(splits[of], options.limit):
        is_equal, shared = index.shared(example)
        total += 1
        num += bool(shared)
        num_equal += is_equal
        rows.update(row for hits, _ in shared for row in hits)
        if shared and len(named) < options.examples:
            hits, text = shared[0]
            names = row_name(splits[of], number), row_name(splits[against], hits[0])
            named.append((*names, text))
    return Overlap(of, against, total, num, num_equal, named, rows)
