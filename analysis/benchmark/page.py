"""What the benchmark says, as the tables of docs/benchmark.md."""

from __future__ import annotations

from collections import Counter

from analysis.comparison.families import settings_of
from analysis.comparison.questions.answers import Answer, Asked
from analysis.comparison.questions.every_question import Answers
from analysis.comparison.selection import Selection
from analysis.statistics.decisions import Verdict
from analysis.tables.table import Tables, count
from analysis.written.asked import Asked as Shown
from analysis.written.entries import Written
from analysis.written.formats import as_markdown
from analysis.written.naming import in_order
from analysis.written.results import results

HEAD = ("claim", "who says so", "tested at", "verdict", "because", "runs")


def page(tables: Tables, selection: Selection, found: Answers, asked: Asked) -> list[str]:
    """All lines between the page's markers."""
    lines = [
        f"{tables.said}. {distinct_told(selection)} Win-rates within {100 * asked.margin:g} points "
        f"of each other count as equal. {verdicts_told(found)}",
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


def distinct_told(selection: Selection) -> str:
    """How many training runs these are: sweeps share conditions, and a run of the same settings and
    seed is the same run again, which counts once in every comparison."""
    runs = [(cell.env, settings_of(cell), seed) for cell in selection.cells for seed in cell.seeds]
    twice = len(runs) - len({*runs})
    if not twice:
        return "No two of them have the same settings and seed."
    return (
        f"{len(runs) - twice} of them are different training runs: {twice} have the settings and "
        "the seed of another one, in a second sweep, and count once in every comparison."
    )


def verdicts_told(found: Answers) -> str:
    """How many verdicts there are of each kind."""
    counts = Counter(one.verdict for one in found.every)
    told = ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict])
    return f"{count(len(found.every), 'verdict')}: {told}." if told else "No verdict."


def row(one: Answer) -> tuple[str, ...]:
    """A claim and what became of it."""
    return one.claim, one.where, one.scale, str(one.verdict), one.reason, one.basis


def left_out(found: Answers) -> list[str]:
    """What was not compared, and what was not asked for want of runs."""
    lines = [f"- {line}" for line in found.left_out]
    lines += [f"- not answered: {one.question} It takes {one.needs}" for one in found.unanswered]
    return ["## Not compared", "", *(lines or ["Nothing."]), ""]
