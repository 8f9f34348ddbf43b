"""The paper's claims and the questions of sweeps, with verdicts and the numbers they stand on."""

from __future__ import annotations

from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import PublicationTable
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.tables.table import Tables

COLUMNS = ("claim", "by", "tested at", "effect", "verdict", "runs")


def verdicts(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """A row for each claim that these runs bear on."""
    answers = answers_of(selection, Criteria(quality=options.quality, margin=options.margin))
    rows = tuple(
        (
            one.claim,
            one.source,
            one.setting,
            one.evidence,
            str(one.verdict),
            one.runs,
        )
        for one in answers.every
    )
    if not rows:
        return []
    caption = (
        f"Claims, and what these runs show of them; margin, stated beforehand: "
        f"{100 * options.margin:g} points of {options.quality}. "
        f"{runs_text(seeds_of(selection.cells))}."
    )
    warnings = [text for one in answers.every for text in one.warnings]
    warnings += [
        f"not answered: {one.question} {one.reason} To make them: {one.needs}"
        for one in answers.unanswered
    ]
    return [PublicationTable("verdicts", caption, COLUMNS, rows, unique(warnings))]
