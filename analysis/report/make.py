"""Make the page of a report from tables: `html(tables, options)` returns the whole page as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import Answers, answers_of
from rlhf_lab_analysis.comparison.selection import KEY, cells
from rlhf_lab_analysis.report.chosen import Chosen, choose
from rlhf_lab_analysis.report.groups import Group, name_groups, page_title
from rlhf_lab_analysis.report.headline import Headline, headlines
from rlhf_lab_analysis.report.rendering import render
from rlhf_lab_analysis.report.results import results
from rlhf_lab_analysis.report.run_table import configs, run_table
from rlhf_lab_analysis.report.samples import samples
from rlhf_lab_analysis.report.series import curve_data, thinning
from rlhf_lab_analysis.report.timelines import legend, timelines
from rlhf_lab_analysis.report.verdicts import QuestionCards, verdicts
from rlhf_lab_analysis.report.warnings import warning_list
from rlhf_lab_analysis.tables.table import Tables

SCRIPTS = (
    *("numbers.js", "state.js", "paired.js", "chart.js", "labels.js", "legend.js", "reading.js"),
    *("download.js", "tables.js", "samples.js", "start.js"),
)
SHOWN_CODES = 4


@dataclass(frozen=True)
class Options:
    """Options of a page. title: what it is called, "" for what its runs differ in. metric: shown
    first, and what claims are about. margin: the largest difference of it that does not matter.
    beside: the page's folder, which links start from. texts: whether samples of runs are in it."""

    title: str = ""
    metric: str = "gold/win_rate"
    margin: float = 0.02
    beside: Path = Path()
    texts: bool = True


def html(tables: Tables, options: Options) -> str:
    """The page; the same tables and options give the same text."""
    criteria = Criteria(quality=options.metric, margin=options.margin)
    selection, judged = cells(tables, unjudged=True), cells(tables)
    groups = name_groups(selection.cells)
    found = answers_of(judged, criteria)
    titles = {group.cell.key: group.title for group in groups}
    first, shown = headlines(judged, found, criteria), verdicts(found)
    ranked = rank_groups(groups, [*first, *shown["questions"]])
    chosen = choose(tables, options.metric, modes=bool(first))
    # Sync beside async, where there is one; else whatever has seconds.
    drawn = timelines(groups, rank_groups(groups, first, only=True) or ranked)
    values = {
        "title": options.title or page_title(selection.cells),
        "summary": f"{size_text(tables)}. {codes(tables.runs)}.",
        "headlines": first,
        "unanswered": found.unanswered,
        "thinning": thinning(groups, chosen),
        "basis": basis(chosen),
        "warnings": page_warnings(tables, groups, selection.left_out, found),
        "sources": sources(tables),
        "timelines": drawn,
        "timeline_legend": legend(drawn),
        "data": page_data(tables, groups, chosen, ranked, first, shown["questions"])
        | {"samples": samples(groups, ranked) if options.texts else []},
        "scripts": SCRIPTS,
        **shown,
        **results(groups, chosen),
        **run_table(tables, titles, options.metric, options.beside),
    }
    return render("page.html", values)


def page_data(
    tables: Tables,
    groups: Sequence[Group],
    chosen: Chosen,
    ranked: Sequence[int],
    first: Sequence[Headline],
    questions: Sequence[QuestionCards],
) -> dict[str, Any]:
    """What the page's script works with."""
    places = {group.cell.key: place for place, group in enumerate(groups)}
    compared = [places[key] for one in first for key in one.conditions]
    curves = curve_data(groups, chosen, ranked)
    return curves | {
        "first": list(dict.fromkeys(compared)),
        "configs": configs(tables),
        "questions": [
            {"text": one.question, "groups": [places[key] for key in one.conditions]}
            for one in questions
        ],
    }


def rank_groups(
    groups: Sequence[Group], first: Sequence[Headline | QuestionCards], only: bool = False
) -> list[int]:
    """The numbers of the conditions, those first that are compared, which are shown first. only:
    those alone."""
    places = {group.cell.key: place for place, group in enumerate(groups)}
    wanted = [places[key] for one in first for key in one.conditions]
    return list(dict.fromkeys([*wanted, *([] if only else range(len(groups)))]))


def page_warnings(
    tables: Tables, groups: Sequence[Group], left_out: Sequence[str], found: Answers
) -> list[tuple[str, Sequence[str]]]:
    remarks = [text for one in found.every for text in one.warnings]
    remarks += [line for line in found.left_out if line not in left_out]
    return warning_list(tables.findings, left_out, groups, remarks)


def size_text(tables: Tables) -> str:
    """How many runs, conditions and seeds; a condition of two sweeps is two, as in the page."""
    runs, _, seeds = tables.overview.split(", ", 2)
    return f"{runs}, {counted(len(tables.runs.groupby(KEY, dropna=False)), 'condition')}, {seeds}"


def codes(runs: pd.DataFrame) -> str:
    counts = Counter(str(code)[:8] or "not recorded" for code in runs["code"])
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    commits = ", ".join(
        f"{code} ({counted(number, 'run')})" for code, number in ordered[:SHOWN_CODES]
    )
    more = f" and {len(ordered) - SHOWN_CODES} more" if len(ordered) > SHOWN_CODES else ""
    return f"Code: {commits}{more}"


def basis(chosen: Chosen) -> str:
    """On what the table of results stands."""
    of = "last judged version" if chosen.versions else "last recorded round"
    return (
        f"Means over seeds of the {of} of each run, with 95% t intervals. Costs are means of what "
        "a run had cost by then, evaluation left out. * some seeds lack this value."
    )


def sources(tables: Tables) -> str:
    names = ", ".join(sorted(set(map(str, tables.runs["source"]))))
    return f"Made by rlhf-lab report from {names}. One self-contained HTML file: it loads nothing."
