"""Prompts of one split that occur in another, found by shared n-grams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab.tasks.audit import Advance, DataOptions, first_rows, row_name
from rlhf_lab.tasks.fingerprints import ngrams, normalised
from rlhf_lab.types.samples import Example, Split


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
