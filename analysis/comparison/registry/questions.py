"""The questions of any runs, `analysis/claims/any_runs/questions.yaml`: answers, and what lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria, Unanswered
from rlhf_lab_analysis.comparison.registry.decisions import decide_claim
from rlhf_lab_analysis.comparison.registry.definitions import (
    FOLDER,
    Definition,
    Registry,
    read_registry,
)
from rlhf_lab_analysis.comparison.registry.reasons import (
    Varied,
    data_reason,
    key_of,
    structure_reason,
)
from rlhf_lab_analysis.comparison.registry.settings import compared
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.tables.table import Tables

FILE = FOLDER / "any_runs" / "questions.yaml"


@dataclass(frozen=True)
class Question:
    """A question, and the claims that answer it."""

    text: str
    claims: tuple[Definition, ...]

    @property
    def varied(self) -> Varied:
        """The settings in which conditions must differ: the levels that are needed, or how many.
        Any claim is an answer, so that those about a change alone count where there are some."""
        found: dict[str, Sequence[Any] | int] = {}
        changes = [one for one in self.claims if "change" in one.row and one.part is None]
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
        sweeps = ", ".join(dict.fromkeys(f"SWEEP={claim.row['sweep']}" for claim in self.claims))
        return f"runs that differ in {keys}: make sweep {sweeps}"

    def open(self, selection: Selection, criteria: Criteria, is_idle: bool) -> Unanswered:
        """Why these conditions give no answer, and the comparisons that lack seeds alone. is_idle:
        what is compared differs in nothing."""
        compared = self.compared(selection)
        if is_idle:
            reason = "The runs that it compares differ in nothing, so that there is no verdict."
        elif compared:
            reason = data_reason(compared, criteria)
        else:
            reason = structure_reason(selection, self.varied)
        return Unanswered(self.text, self.needs, reason, compared)

    def compared(self, selection: Selection) -> tuple[tuple[Cell, ...], ...]:
        """The conditions that it would compare, whatever their seeds, the baseline first."""
        found: dict[frozenset[Cell], tuple[Cell, ...]] = {}
        for claim in self.claims:
            if "change" in claim.row:
                for one in compared(claim, selection):
                    found.setdefault(frozenset(one), one)
        return tuple(found.values())


def needed_levels(before: Any, after: Any) -> Sequence[Any] | int:
    """Two levels that are named, else how many a word needs."""
    words = {"least", "most"}
    if before in words or isinstance(after, list) or after == "other":
        return 3 if after == "middle" else 2
    return before, after


@dataclass(frozen=True)
class Answers:
    """The answers by question, the questions without an answer, and what was not compared."""

    given: tuple[tuple[str, tuple[Answer, ...]], ...]
    unanswered: tuple[Unanswered, ...]
    left_out: tuple[str, ...]

    @property
    def every(self) -> list[Answer]:
        """The answers of all questions."""
        return [one for _, found in self.given for one in found]


@cache
def registry() -> Registry:
    return read_registry(FILE)


def claim_named(name: str) -> Definition:
    """The claim of any runs with this name."""
    return next(claim for claim in registry().claims if claim.name == name)


@cache
def questions() -> tuple[Question, ...]:
    """All questions, in the order of the file."""
    claims = registry().claims
    texts = dict.fromkeys(claim.row["question"] for claim in claims)
    return tuple(
        Question(text, tuple(one for one in claims if one.row["question"] == text))
        for text in texts
    )


def answers(tables: Tables, criteria: Criteria | None = None) -> Answers:
    """All answers that these tables allow. criteria: by default, win-rates within 2 points count
    as equal."""
    return answers_of(cells(tables), criteria or Criteria())


def answers_of(
    selection: Selection, criteria: Criteria, asked: Sequence[Question] | None = None
) -> Answers:
    """All answers that this selection allows. Conditions of one seed, or without the metrics of the
    criteria, are not compared."""
    usable, reasons = with_seeds(selection, criteria)
    given, lacking = [], []
    for question in questions() if asked is None else asked:
        made = [decide_claim(claim, usable, criteria) for claim in question.claims]
        idle = [f"not compared: {line}" for _, lines in made for line in lines]
        reasons += idle
        if found := tuple(one.answer for decided, _ in made for one in decided):
            given.append((question.text, found))
        else:
            lacking.append(question.open(selection, criteria, bool(idle)))
    return Answers(tuple(given), tuple(lacking), (*selection.left_out, *reasons))


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
