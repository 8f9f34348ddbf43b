"""Judge any runs by all claims: those with a plan, and the questions of any runs where these lack.

`rlhf-lab claims`, `rlhf-lab report`, notebooks and publication tables show the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria, Unanswered
from rlhf_lab_analysis.comparison.registry.decisions import (
    Decision,
    Decisions,
    condition_of,
    decide_all,
)
from rlhf_lab_analysis.comparison.registry.definitions import (
    FOLDER,
    Definition,
    Registry,
    read_registries,
)
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.registry.reasons import (
    Varied,
    data_reason,
    key_of,
    structure_reason,
)
from rlhf_lab_analysis.comparison.registry.settings import compared
from rlhf_lab_analysis.comparison.selection import Selection


@dataclass(frozen=True)
class Question:
    """A question of any runs, and the claims that answer it."""

    text: str
    claims: tuple[Definition, ...]

    @property
    def varied(self) -> Varied:
        """The settings in which conditions must differ: the levels that are needed, or how many.
        Any claim is an answer, so that those about a change alone count where there are some."""
        found: dict[str, Sequence[Any] | int] = {}
        changes = [one for one in self.claims if one.part is None]
        for claim in changes or self.claims:
            for key, (before, after) in claim.row.get("change", {}).items():
                found.setdefault(key, needed_levels(before, after))
            if claim.part:
                name, row = claim.part
                found.setdefault(name, 2 if row["after"] == "largest" else (row["after"],))
        return found

    @property
    def needs(self) -> str:
        """The runs to make for it."""
        keys = " and ".join(key_of(part) for part in self.varied)
        making = ", ".join(dict.fromkeys(claim.making for claim in self.claims))
        return f"runs that differ in {keys}: {making}"

    def has(self, line: str) -> bool:
        """Whether a line is about one of its claims."""
        return any(line.startswith(f"not compared: {one.name}, ") for one in self.claims)

    def open(self, selection: Selection, criteria: Criteria, is_idle: bool) -> Unanswered:
        """Why these conditions give no answer, and the comparisons that lack seeds alone. is_idle:
        what is compared differs in nothing."""
        found: dict[frozenset[Cell], tuple[Cell, ...]] = {}
        for claim in self.claims:
            for cells in compared(claim, selection):
                found.setdefault(frozenset(cells), cells)
        if is_idle:
            reason = "The runs that it compares differ in nothing, so that there is no verdict."
        elif found:
            reason = data_reason([*found.values()], criteria)
        else:
            reason = structure_reason(selection, self.varied)
        return Unanswered(self.text, self.needs, reason, tuple(found.values()))


def needed_levels(before: Any, after: Any) -> Sequence[Any] | int:
    """Two levels that are named, else how many a word needs."""
    words = {"least", "most"}
    if before in words or isinstance(after, list) or after == "other":
        return 3 if after == "middle" else 2
    return before, after


@dataclass(frozen=True)
class Answers:
    """What all claims come to, by file, the questions without an answer, and what was not
    compared."""

    judged: tuple[Decisions, ...]
    unanswered: tuple[Unanswered, ...]
    left_out: tuple[str, ...]

    @property
    def decided(self) -> list[Decision]:
        """Every row."""
        return [one for found in self.judged for one in found.decided]

    @property
    def every(self) -> list[Answer]:
        return [one.answer for one in self.decided]

    @property
    def given(self) -> list[tuple[str, list[Answer]]]:
        """The answers by question."""
        found: dict[str, list[Answer]] = {}
        for one in self.every:
            found.setdefault(one.question, []).append(one)
        return list(found.items())


@cache
def registries() -> tuple[Registry, ...]:
    """The files of claims of this project."""
    return tuple(read_registries(FOLDER))


def claim_named(name: str) -> Definition:
    """The claim of any runs with this name."""
    return next(one for one in general(registries()) if one.name == name)


def general(files: Iterable[Registry]) -> list[Definition]:
    return [claim for one in files if one.is_general for claim in one.claims]


def questions(files: Iterable[Registry] | None = None) -> list[Question]:
    """All questions of any runs, in the order of the file."""
    found: dict[str, list[Definition]] = {}
    for claim in general(registries() if files is None else files):
        found.setdefault(claim.row["question"], []).append(claim)
    return [Question(text, tuple(claims)) for text, claims in found.items()]


def answers_of(
    selection: Selection, criteria: Criteria, files: Sequence[Registry] | None = None
) -> Answers:
    """All answers that these conditions allow, by these files of claims (those of this project).
    Conditions of one seed, or without the metrics of the criteria, are not compared.

    A question of any runs leaves out conditions that claims with a plan compare.
    """
    files = registries() if files is None else files
    usable, reasons = with_seeds(selection, criteria)
    planned = [one for one in files if not one.is_general]
    judged, stopped = [], []
    for file in planned:
        kept, lines = gated(file, usable)
        judged.append(decide_all(file, kept, criteria))
        stopped += lines
    keys = {key for one in judged for row in one.decided for key in row.answer.conditions}
    read = {condition_of(cell) for cell in usable.cells if cell.key in keys}
    for file in files:
        if file.is_general:
            judged.append(decide_all(file, usable, criteria, read))
    idle = [f"not compared: {line}" for one in judged for line in one.idle]
    answered = {row.answer.question for one in judged for row in one.decided}
    lacking = [
        one.open(selection, criteria, any(one.has(line) for line in idle))
        for one in questions(files)
        if one.text not in answered
    ]
    # What claims of other questions compare has its verdicts there.
    unanswered = [
        one
        for one in lacking
        if not one.compared
        or not {condition_of(cell) for cells in one.compared for cell in cells} <= read
    ]
    left_out = (*selection.left_out, *reasons, *dict.fromkeys(stopped), *idle)
    return Answers(tuple(judged), tuple(unanswered), left_out)


def with_seeds(selection: Selection, criteria: Criteria) -> tuple[Selection, list[str]]:
    """The conditions that can be compared, and a line for each that cannot."""
    kept, reasons = [], []
    for cell in selection.cells:
        lacks = [name for name in (criteria.quality, criteria.drift) if not cell.has(name)]
        if len(cell.seeds) < 2:
            reasons.append(f"not compared: {cell.condition} has seed {cell.seeds[0]} alone")
        elif lacks:
            reasons.append(f"not compared: {cell.condition} has no {' and no '.join(lacks)}")
        else:
            kept.append(cell)
    return Selection(tuple(kept), selection.left_out), reasons
