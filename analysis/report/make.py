"""Make the page of a report from tables: `html(tables, options)` returns the whole page as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rlhf_lab_analysis.comparison.questions.answers import Criteria
from rlhf_lab_analysis.comparison.questions.every_question import answers
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.report.colours import styles_of
from rlhf_lab_analysis.report.groups import name_groups
from rlhf_lab_analysis.report.rendering import render
from rlhf_lab_analysis.report.results import results
from rlhf_lab_analysis.report.run_table import configs, run_table
from rlhf_lab_analysis.report.series import Chosen, choose, curve_data, thinning
from rlhf_lab_analysis.report.verdicts import verdicts
from rlhf_lab_analysis.report.warnings import warning_list
from rlhf_lab_analysis.tables.table import Tables, count

SCRIPTS = ("numbers.js", "chart.js", "reading.js", "tables.js")
SHOWN_CODES = 4


@dataclass(frozen=True)
class Options:
    """Options of a page. metric: shown first, and what claims are about. margin: the largest
    difference of it that does not matter. beside: the page's folder, which links start from."""

    title: str = "Runs compared"
    metric: str = "gold/win_rate"
    margin: float = 0.02
    beside: Path = Path()


def html(tables: Tables, options: Options) -> str:
    """The page; the same tables and options give the same text."""
    chosen = choose(tables, options.metric)
    selection = cells(tables, unjudged=True)
    groups, left_out = name_groups(selection.cells), selection.left_out
    found = answers(tables, Criteria(quality=options.metric, margin=options.margin))
    remarks = [text for one in found.every for text in one.warnings]
    remarks += [line for line in found.left_out if line not in left_out]
    styles = styles_of([group.cell for group in groups])
    titles = {(g.cell.sweep, g.cell.env, g.cell.condition): g.title for g in groups}
    values = {
        "title": options.title,
        "summary": f"{tables.overview}. {codes(tables.runs)}.",
        "thinning": thinning(groups, chosen),
        "basis": basis(chosen),
        "warnings": warning_list(tables.findings, left_out, groups, remarks),
        "sources": sources(tables),
        "data": curve_data(groups, styles, chosen) | {"configs": configs(tables)},
        "scripts": SCRIPTS,
    }
    values |= verdicts(found) | results(groups, chosen)
    values |= run_table(tables, titles, options.metric, options.beside)
    return render("page.html", values)


def codes(runs: pd.DataFrame) -> str:
    counts = Counter(str(code)[:8] or "not recorded" for code in runs["code"])
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    commits = ", ".join(
        f"{code} ({count(number, 'run')})" for code, number in ordered[:SHOWN_CODES]
    )
    more = f" and {len(ordered) - SHOWN_CODES} more" if len(ordered) > SHOWN_CODES else ""
    return f"Code: {commits}{more}"


def basis(chosen: Chosen) -> str:
    """On what the table of results stands."""
    of = "last judged version" if chosen.versions else "last recorded round"
    return (
        f"Means over seeds of the {of} of each run, with 95% t intervals. Costs are means of what "
        "a run had cost by then, evaluation left out. A star marks seeds without the number."
    )


def sources(tables: Tables) -> str:
    names = ", ".join(sorted(set(map(str, tables.runs["source"]))))
    return f"Made by rlhf-lab report from {names}. The page is whole: it loads nothing."
