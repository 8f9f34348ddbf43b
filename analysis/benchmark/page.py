"""What the benchmark says, as the tables of docs/benchmark.md."""

from __future__ import annotations

from analysis.questions.answers import Answer, Asked
from analysis.questions.every_question import Answers
from analysis.selection import Selection
from analysis.tables.table import Tables
from analysis.written.asked import Asked as Shown
from analysis.written.entries import Written
from analysis.written.formats import as_markdown
from analysis.written.naming import in_order
from analysis.written.results import results

HEAD = ("claim", "who says so", "tested at", "verdict", "because", "runs")


def page(tables: Tables, selection: Selection, found: Answers, asked: Asked) -> list[str]:
    """All lines between the page's markers."""
    lines = [
        f"{tables.said}. Win-rates within {100 * asked.margin:g} points of each other count as "
        "equal.",
        "",
    ]
    for question, answers in found.given:
        rows = tuple(row(one) for one in answers)
        lines += [f"## {question}", *as_markdown(Written("verdicts", "", HEAD, rows)).splitlines()]
        lines.append("")
    lines += ["## Results", ""]
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        cells = in_order(selection.only(sweep=sweep).cells)
        shown = Shown(metrics=(asked.quality, "proxy/mean", asked.drift))
        for table in results(tables, Selection(cells, ()), shown):
            lines += [f"### {sweep}", "", *as_markdown(table).splitlines(), ""]
    return [*lines, *left_out(found)]


def row(one: Answer) -> tuple[str, ...]:
    """A claim and what became of it."""
    return one.claim, one.where, one.scale, str(one.verdict), one.reason, one.basis


def left_out(found: Answers) -> list[str]:
    """What was not compared, and what was not asked for want of runs."""
    lines = [f"- {line}" for line in found.left_out]
    lines += [f"- not answered: {one.question} It takes {one.needs}" for one in found.unanswered]
    return ["## Not compared", "", *(lines or ["Nothing."]), ""]
