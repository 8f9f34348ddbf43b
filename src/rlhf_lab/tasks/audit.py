"""What is in the splits of a task: lengths, empty values, repeats, and overlap between splits.

Rows are read one at a time; what is held is 64 bits a prompt, and the n-grams of validation and
test, never the texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.tasks.fingerprints import fingerprint, ngrams, normalised
from rlhf_lab.tasks.prompts import Encode, Render, Shorten, fitted, text_of
from rlhf_lab.tasks.tables import TableExamples
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

IDS = ("id", "uid")
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
        True, about="Whether lengths are counted in tokens too; false needs no model."
    )
    examples: int = limits.count(3, least=0, about="Examples shown of each finding.")
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


class Lengths:
    """How long texts are. Holds one count for every length that occurs."""

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
        """The least length that at least this share of the texts do not exceed."""
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
    """Rows that say what an earlier one said; `named` are the first few, with the earlier one."""

    most_named: int
    num: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)

    def add(self, key: int, index: int, place: Callable[[int], str]) -> bool:
        """Whether this key was there before."""
        first = self._seen.setdefault(key, index)
        if first == index:
            return False
        self.num += 1
        if len(self.named) < self.most_named:
            self.named.append((place(index), place(first)))
        return True


@dataclass
class SplitAudit:
    """What one split holds. Sets are of row numbers within the split."""

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

    def repeats(self, index: int, prompt: str, place: Callable[[int], str]) -> bool:
        """Whether an earlier row has this prompt, or nearly. Each repeat is counted once."""
        if self.same.add(fingerprint(prompt), index, place):
            return True
        return self.near.add(normalised(prompt), index, place)


@dataclass(frozen=True)
class Limits:
    """How prompts are read, and how many tokens they and their answers may have."""

    encode: Encode | None
    shorten: Shorten
    prompt: int
    response: int
    render: Render = text_of


def place_of(examples: Sequence[Example], index: int) -> str:
    """What a user calls a row: its line in the file, where there is one."""
    if isinstance(examples, TableExamples):
        return f"{Path(examples.table.source).name}:{examples.number(index)}"
    return examples[index].uid


def first_rows(examples: Sequence[Example], limit: int) -> Iterator[tuple[int, Example]]:
    """Numbered rows of a split, up to the limit if there is one."""
    for index in range(min(limit or len(examples), len(examples))):
        yield index, examples[index]


def audit_split(
    split: Split,
    examples: Sequence[Example],
    limits: Limits,
    options: DataOptions,
    advance: Advance,
) -> SplitAudit:
    """Read a split once."""
    kinds = ("prompt characters", "reference characters")
    found = SplitAudit(
        split,
        min(options.limit or len(examples), len(examples)),
        {kind: Lengths() for kind in kinds},
        Repeats(options.examples),
        Repeats(options.examples),
        Repeats(options.examples),
    )
    if limits.encode:
        found.lengths["prompt tokens"] = Lengths(limits.prompt)
        found.lengths["reference tokens"] = Lengths(limits.response)

    def place(index: int) -> str:
        return place_of(examples, index)

    for index, example in first_rows(examples, options.limit):
        measure(found, index, example, limits)
        if found.repeats(index, example.prompt, place):
            found.repeated.add(index)
        if isinstance(examples, TableExamples):
            read_columns(found, index, examples.row(index), place)
        advance()
    return found


def measure(found: SplitAudit, index: int, example: Example, limits: Limits) -> None:
    """Add the lengths of one row."""
    found.lengths["prompt characters"].add(len(example.prompt))
    found.lengths["reference characters"].add(len(example.reference))
    if not limits.encode:
        return
    num = len(limits.encode(limits.render(example)))
    found.lengths["prompt tokens"].add(num)
    # The end token counts too.
    found.lengths["reference tokens"].add(len(limits.encode(example.reference)) + 1)
    if num > limits.prompt:
        _, tokens = fitted(example, limits.encode, limits.shorten, limits.prompt, limits.render)
        if len(tokens) > limits.prompt:
            found.too_long.add(index)
        else:
            found.shortened += 1


def read_columns(
    found: SplitAudit, index: int, row: Mapping[str, Any], place: Callable[[int], str]
) -> None:
    """Count a row's empty values and its id. Columns that first appear now were absent before."""
    known = set(found.columns)
    for name in row:
        if name not in known:
            found.columns.append(name)
            found.empty[name] = index
    for name in found.columns:
        found.empty[name] += is_empty(row.get(name))
    for name in IDS:
        if not is_empty(row.get(name)):
            found.ids.add(fingerprint(str(row[name])), index, place)
            return


def is_empty(value: Any) -> bool:
    """Whether a value says nothing."""
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


@dataclass(frozen=True)
class Overlap:
    """Prompts of a split that share an n-gram, or all of their words, with prompts of another.

    named: the first few, with a row of the other split and what they share. rows: of the other.
    """

    of: Split
    against: Split
    total: int
    num: int
    num_equal: int
    named: list[tuple[str, str, str]]
    rows: set[int]


class Index:
    """Rows of one split in which the n-grams of another split occur, at most `common` + 1 each."""

    def __init__(self, examples: Sequence[Example], options: DataOptions) -> None:
        self._options = options
        self._hits: dict[int, list[int]] = {}
        self._equal: dict[int, list[int]] = {}
        for _, example in first_rows(examples, options.limit):
            self._equal.setdefault(normalised(example.prompt), [])
            for gram, _ in ngrams(example.prompt, options.ngram):
                self._hits.setdefault(gram, [])

    def note(self, index: int, example: Example) -> None:
        """A row of the other split."""
        same = self._equal.get(normalised(example.prompt))
        if same is not None:
            same.append(index)
        for gram, _ in ngrams(example.prompt, self._options.ngram):
            rows = self._hits.get(gram)
            if rows is not None and len(rows) <= self._options.common and index not in rows[-1:]:
                rows.append(index)

    def shared(self, example: Example) -> tuple[bool, list[tuple[list[int], str]]]:
        """Whether a prompt of the split is in the other, and rows there with what they share."""
        equal = self._equal[normalised(example.prompt)]
        found = [(equal, "all of its words")] if equal else []
        for gram, text in ngrams(example.prompt, self._options.ngram):
            if 1 <= len(self._hits[gram]) <= self._options.common:
                found.append((self._hits[gram], text))
        return bool(equal), found


def overlap(
    of: Split,
    against: Split,
    splits: Mapping[Split, Sequence[Example]],
    options: DataOptions,
    advance: Advance,
) -> Overlap:
    """Compare two splits: n-grams of the first are held, rows of the second are read one by one."""
    index = Index(splits[of], options)
    for number, example in first_rows(splits[against], options.limit):
        index.note(number, example)
        advance()
    named: list[tuple[str, str, str]] = []
    rows: set[int] = set()
    num = num_equal = total = 0
    for place, example in first_rows(splits[of], options.limit):
        is_equal, found = index.shared(example)
        total += 1
        num += bool(found)
        num_equal += is_equal
        rows.update(row for hits, _ in found for row in hits)
        if found and len(named) < options.examples:
            hits, text = found[0]
            named.append((place_of(splits[of], place), place_of(splits[against], hits[0]), text))
    return Overlap(of, against, total, num, num_equal, named, rows)
