"""The tables of docs/benchmark.md, from the benchmark's runs."""

from __future__ import annotations

from collections import Counter

from rlhf_lab_analysis.comparison.families import settings_of
from rlhf_lab_analysis.comparison.questions.answers import Answer, Criteria
from rlhf_lab_analysis.comparison.questions.every_question import Answers
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.entries import PublicationTable
from rlhf_lab_analysis.publication_tables.formats import as_markdown
from rlhf_lab_analysis.publication_tables.naming import in_order
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.results import results
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.table import Tables, count

HEAD = ("claim", "source", "setting", "verdict", "evidence", "runs")


def page(tables: Tables, selection: Selection, found: Answers, criteria: Criteria) -> list[str]:
    """All lines between the page's markers."""
    lines = [
        f"{tables.overview}. {distinct_text(selection)} Win-rates within {100 * criteria.margin:g} "
        f"points of each other count as equal. {verdicts_text(found)}",
        "",
    ]
    for question, answers in found.given:
        rows = tuple(row(one) for one in answers)
        lines += [
            f"## {question}",
            *as_markdown(PublicationTable("verdicts", "", HEAD, rows)).splitlines(),
        ]
        lines.append("")
    lines += ["## Results", ""]
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        cells = in_order(selection.only(sweep=sweep).cells)
        shown = TableOptions(metrics=(criteria.quality, "proxy/mean", criteria.drift))
        for table in results(tables, Selection(cells, ()), shown):
            lines += [f"### {sweep}", "", *as_markdown(table).splitlines(), ""]
    return [*lines, *left_out(found)]


def distinct_text(selection: Selection) -> str:
    """How many different training runs these are: sweeps share conditions, and runs of the same
    settings and seed count once in every comparison."""
    runs = [(cell.env, settings_of(cell), seed) for cell in selection.cells for seed in cell.seeds]
    twice = len(runs) - len({*runs})
    if not twice:
        return "No two of them have the same settings and seed."
    return (
        f"{len(runs) - twice} of them are different training runs: {twice} have the settings and "
        "the seed of another one, in a second sweep, and count once in every comparison."
    )


def verdicts_text(found: Answers) -> str:
    """How many verdicts there are of each kind."""
    counts = Counter(one.verdict for one in found.every)
    counted = ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict])
    return f"{count(len(found.every), 'verdict')}: {counted}." if counted else "No verdict."


def row(one: Answer) -> tuple[str, ...]:
    """The row of a claim: source, setting, verdict, evidence and runs."""
    return one.claim, one.source, one.setting, str(one.verdict), one.evidence, one.runs


def left_out(found: Answers) -> list[str]:
    """Lines for what was not compared, and for questions that lack runs."""
    lines = [f"- {line}" for line in found.left_out]
    lines += [
        f"- not answered: {one.question} {one.reason} To make them: {one.needs}"
        for one in found.unanswered
    ]
    return ["## Not compared", "", *(lines or ["Nothing."]), ""]
