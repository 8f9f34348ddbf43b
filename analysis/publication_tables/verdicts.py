"""The paper's claims and the questions of sweeps, with verdicts and the numbers they stand on."""

from __future__ import annotations

from analysis.comparison.questions.answers import Criteria as Compared
from analysis.comparison.questions.every_question import answers_of
from analysis.comparison.selection import Selection
from analysis.publication_tables.entries import PublicationTable
from analysis.publication_tables.options import TableOptions
from analysis.publication_tables.provenance_text import left_out_text, runs_text, unique
from analysis.tables.table import Tables

COLUMNS = ("claim", "by", "tested at", "verdict", "reason", "numbers", "runs")


def verdicts(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """A row for each claim that these runs bear on."""
    given = answers_of(selection, Compared(quality=options.quality, margin=options.margin))
    rows = tuple(
        (
            one.claim,
            one.source,
            one.setting,
            str(one.verdict),
            one.evidence,
            "; ".join(f"{number.label}: {number.text}" for number in one.numbers),
            one.runs,
        )
        for one in given.every
    )
    if not rows:
        return []
    caption = (
        f"Claims, and what these runs show of them; margin, stated beforehand: "
        f"{100 * options.margin:g} points of {options.quality}. {runs_text(selection.cells)}."
    )
    told = [f"not answered: {one.question} It takes {one.needs}" for one in given.unanswered]
    warned = [text for one in given.every for text in one.warnings]
    warnings = (*unique((*warned, *told)), *left_out_text(selection))
    return [PublicationTable("verdicts", caption, COLUMNS, rows, warnings)]
