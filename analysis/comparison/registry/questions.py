"""Judge any runs by all claims: those with a plan, and the questions of any runs where these lack.

`rlhf-lab claims`, `rlhf-lab report`, notebooks and publication tables show the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cache

from rlhf_lab_analysis.comparison.cell import Cell, Training
from rlhf_lab_analysis.comparison.families import keys_of, order, value_of
from rlhf_lab_analysis.comparison.names import naming
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria, Unanswered
from rlhf_lab_analysis.comparison.registry.comparisons import compared
from rlhf_lab_analysis.comparison.registry.decisions import Decision, Decisions, decide_all
from rlhf_lab_analysis.comparison.registry.definitions import (
    FOLDER,
    Definition,
    Registry,
    read_registries,
)
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.ranges import ranges_text


@dataclass(frozen=True)
class Question:
    """A question of any runs, and the claims that answer it."""

    text: str
    claims: tuple[Definition, ...]

    @property
    def varied(self) -> list[str]:
        """The settings in which conditions must differ. Any claim is an answer, so that those about
        a change alone count where there are some."""
        claims = [one for one in self.claims if one.part is None] or self.claims
        keys = [[*claim.varied, *claim.row.get("more_than", ())] for claim in claims]
        return list(dict.fromkeys(key for own in keys for key in own))

    @property
    def needs(self) -> str:
        """The runs to make for it."""
        keys = " and ".join(map(option_of, self.varied))
        making = ", ".join(dict.fromkeys(claim.making for claim in self.claims))
        return f"runs that differ in {keys}: {making}"

    def compared(self, selection: Selection) -> list[tuple[Cell, ...]]:
        """The conditions that differ as it needs, whatever their seeds."""
        return [cells for claim in self.claims for cells in compared(claim, selection)]

    def reason(self, selection: Selection, criteria: Criteria, idle: Sequence[str]) -> str:
        """Why these conditions give no answer. idle: lines on what differs in nothing."""
        starts = tuple(f"not compared: {one.name}, " for one in self.claims)
        if any(line.startswith(starts) for line in idle):
            return "The runs that it compares differ in nothing, so that there is no verdict."
        if found := self.compared(selection):
            return data_reason(found, criteria)
        if selection.cells:
            return structure_reason(selection.cells, self.varied)
        return "No run counts: the warnings have the reasons."


def option_of(part: str) -> str:
    """The option that a part is set by on the command line."""
    return keys_of(part)[0].rstrip(".")


def structure_reason(cells: Sequence[Cell], varied: Iterable[str]) -> str:
    """Which setting is the same in all conditions that must differ, or in what they differ too."""
    for part in varied:
        values = sorted({value_of(cell, part) for cell in cells} - {None}, key=order)
        if len(values) < 2:
            value = str(values[0]) if values else "not set"
            return f"It needs runs that differ in {option_of(part)}: it is {value} in all of these."
    known = naming(cells)
    keys = ", ".join(dict.fromkeys(map(option_of, (*known.keys, *known.follow))))
    wanted = " and ".join(map(option_of, varied))
    return f"It needs enough values of {wanted}, and all else equal: these differ in {keys}."


def data_reason(compared: Sequence[Sequence[Cell]], criteria: Criteria) -> str:
    """Why conditions that differ as they should have no answer: seeds, or evaluations."""
    cells = [cell for one in compared for cell in one]
    for metric in (criteria.quality, criteria.drift):
        if lacking := [cell for cell in cells if not cell.has(metric)]:
            return (
                f"{lacking[0].condition} has no {metric} at some evaluated version: evaluate it "
                "again (rlhf-lab evaluate RUN)."
            )
    if seeds := sorted({cell.seeds[0] for cell in cells if len(cell.seeds) < 2}):
        named = f"seed {seeds[0]} alone" if len(seeds) == 1 else f"one seed of {ranges_text(seeds)}"
        return f"It needs two seeds of each condition: these have {named} (add seed=1,2,3)."
    if all(len(set.intersection(*(set(c.seeds) for c in one))) < 2 for one in compared):
        return "It needs two seeds that the compared conditions have in common."
    return "The conditions are there, but not evaluated at the same points (eval.snapshots)."


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
    claims = (claim for one in questions() for claim in one.claims)
    return next(claim for claim in claims if claim.name == name)


def questions(files: Iterable[Registry] | None = None) -> list[Question]:
    """All questions of any runs, in the order of the file."""
    found: dict[str, list[Definition]] = {}
    for file in registries() if files is None else files:
        for claim in file.claims if file.is_general else ():
            found.setdefault(claim.question, []).append(claim)
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
    judged, stopped = [], []
    for file in (one for one in files if not one.is_general):
        kept, lines = gated(file, usable)
        judged.append(decide_all(file, kept, criteria))
        stopped += lines
    keys = {key for one in judged for row in one.decided for key in row.answer.conditions}
    read = {cell.training for cell in usable.cells if cell.key in keys}
    judged += [decide_all(file, usable, criteria, read) for file in files if file.is_general]
    idle = [f"not compared: {line}" for one in judged for line in one.idle]
    answered = {row.answer.question for one in judged for row in one.decided}
    unanswered = [
        Unanswered(one.text, one.needs, one.reason(selection, criteria, idle))
        for one in questions(files)
        if one.text not in answered and not is_elsewhere(one.compared(selection), read)
    ]
    left_out = (*selection.left_out, *reasons, *dict.fromkeys(stopped), *idle)
    return Answers(tuple(judged), tuple(unanswered), left_out)


def is_elsewhere(compared: Sequence[Sequence[Cell]], read: Set[Training]) -> bool:
    """Whether claims of other questions compare all these conditions, so that their verdicts are
    there."""
    return bool(compared) and {cell.training for cells in compared for cell in cells} <= read


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
