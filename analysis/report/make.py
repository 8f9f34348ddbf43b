"""The page of a report, from tables: `html(tables, asked)` is all of it as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd

from analysis.comparison.questions.answers import Asked
from analysis.comparison.questions.every_question import answers
from analysis.report.colours import looks_of
from analysis.report.groups import Group, groups_of
from analysis.report.markup import Markup, data_block, element, joined, shown
from analysis.report.results import results_table
from analysis.report.run_table import configs, run_table
from analysis.report.series import Chosen, choose, curve_data, thinning
from analysis.report.verdicts import verdicts
from analysis.report.warnings import warning_list
from analysis.tables.table import Tables, count

SCRIPTS = ("numbers.js", "chart.js", "reading.js", "tables.js")
SHOWN_CODES = 4


@dataclass(frozen=True)
class Options:
    """What a page is asked for. metric: shown first, and what claims are about. margin: the largest
    difference of it that does not matter. beside: the page's folder, which links start from."""

    title: str = "Runs compared"
    metric: str = "gold/win_rate"
    margin: float = 0.02
    beside: Path = Path()


def html(tables: Tables, options: Options) -> str:
    """The page; the same tables and options give the same text."""
    chosen = choose(tables, options.metric)
    groups, left_out = groups_of(tables, chosen.columns)
    found = answers(tables, Asked(quality=options.metric, margin=options.margin))
    told = [text for one in found.every for text in one.warnings]
    told += [line for line in found.left_out if line not in left_out]
    data = curve_data(groups, looks_of(groups), chosen) | {"configs": configs(tables)}
    titles = {(group.sweep, group.env, group.condition): group.title for group in groups}
    parts: Mapping[str, str] = {
        "title": shown(options.title),
        "style": part("page.css"),
        "said": shown(said(tables)),
        "questions": verdicts(found),
        "thinning": shown(thinning(groups, chosen)),
        "basis": shown(basis(chosen)),
        "results": results(groups, chosen),
        "runs": run_table(tables, titles, options.metric, options.beside),
        "warnings": warning_list(tables.findings, left_out, groups, told),
        "made": shown(made(tables)),
        "data": data_block("data", data),
        "script": "\n".join(part(name) for name in SCRIPTS),
    }
    return Template(part("page.html")).substitute(parts)


def part(name: str) -> str:
    """A file of the page's own."""
    return files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def said(tables: Tables) -> str:
    """How many runs, conditions and seeds, of which code."""
    return f"{tables.said}. {codes(tables.runs)}."


def codes(runs: pd.DataFrame) -> str:
    counts = Counter(str(code)[:8] or "not recorded" for code in runs["code"])
    ordered = sorted(counts.items(), key=lambda held: (-held[1], held[0]))
    told = ", ".join(f"{code} ({count(number, 'run')})" for code, number in ordered[:SHOWN_CODES])
    more = f" and {len(ordered) - SHOWN_CODES} more" if len(ordered) > SHOWN_CODES else ""
    return f"Code: {told}{more}"


def basis(chosen: Chosen) -> str:
    """On what the table of results stands."""
    of = "last judged version" if chosen.versions else "last recorded round"
    return (
        f"Means over seeds of the {of} of each run, with 95% t intervals. Costs are means of what "
        "a run had cost by then, evaluation left out. A star marks seeds without the number."
    )


def results(groups: Sequence[Group], chosen: Chosen) -> Markup:
    """A table for each environment, whose numbers are of one scale."""
    if not groups:
        return element("p", "No run counts; Warnings say why.")
    envs = dict.fromkeys(group.env for group in groups)
    return joined(results_table([g for g in groups if g.env == env], chosen) for env in envs)


def made(tables: Tables) -> str:
    sources = ", ".join(sorted(set(map(str, tables.runs["source"]))))
    return f"Made by rlhf-lab report from {sources}. The page is whole: it loads nothing."
