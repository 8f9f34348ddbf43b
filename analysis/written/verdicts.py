"""The paper's claims and the questions of sweeps, with verdicts and the numbers they stand on."""

from __future__ import annotations

from analysis.comparison.questions.answers import Asked as Compared
from analysis.comparison.questions.every_question import answers_of
from analysis.comparison.selection import Selection
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.basis import each_once, left_out_told, runs_told
from analysis.written.entries import Written

COLUMNS = ("claim", "by", "tested at", "verdict", "reason", "numbers", "runs")


def verdicts(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """A row for each claim that these runs bear on."""
    given = answers_of(selection, Compared(quality=asked.quality, margin=asked.margin))
    rows = tuple(
        (
            one.claim,
            one.where,
            one.scale,
            str(one.verdict),
            one.reason,
            "; ".join(f"{number.label}: {number.text}" for number in one.numbers),
            one.basis,
        )
        for one in given.every
    )
    if not rows:
        return []
    caption = (
        f"Claims, and what these runs show of them; margin, stated beforehand: "
        f"{100 * asked.margin:g} points of {asked.quality}. {runs_told(selection.cells)}."
    )
    told = [f"not asked: {one.question} It takes {one.needs}" for one in given.unanswered]
    warned = [text for one in given.every for text in one.warnings]
    warnings = (*each_once((*warned, *told)), *left_out_told(selection))
    return [Written("verdicts", caption, COLUMNS, rows, warnings)]
