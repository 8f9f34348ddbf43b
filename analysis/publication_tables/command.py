"""`rlhf-lab publication-tables`: tables of any runs in LaTeX, Markdown and CSV."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.plots.style import read_style
from rlhf_lab_analysis.publication_tables.formats import save
from rlhf_lab_analysis.publication_tables.options import SHORT, TableOptions
from rlhf_lab_analysis.publication_tables.registry import TABLES, make_tables
from rlhf_lab_analysis.ranges import first_few, listed
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.summary import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    usual, add = TableOptions(), parser.add_argument
    add("sources", nargs="+", metavar="RUNS", help="folders of runs, or saved tables")
    add("--out", type=Path, required=True, metavar="FOLDER")
    many: Any = {"action": "extend", "nargs": "+", "default": []}
    add("--only", **many, metavar="TABLE", help=f"of {listed(TABLES)} (default: all)")
    add("--metric", **many, help=f"{listed(SHORT)}, or a metric's whole name")
    add("--baseline", default="", help="KEY=VALUE, such as N=1, or a condition's name")
    add("--margin", **many, metavar="[METRIC=]SIZE",
        help=f"the largest difference that does not matter; of shares {usual.margin}")  # fmt: skip
    add("--level", type=float, default=usual.interval.level)
    add("--style", type=Path, metavar="FILE", help="YAML: order, labels, heads; as of `plot`")


def options_of(chosen: argparse.Namespace) -> TableOptions:
    """The options as the tables take them. Raises UserError for a margin that is none."""
    margins = {}
    for text in chosen.margin:
        metric, _, size = text.rpartition("=")
        try:
            margins[metric] = float(size)
        except ValueError:
            raise UserError(f"--margin {text}: pass a number, such as 0.02") from None
    usual = TableOptions()
    return TableOptions(
        metrics=chosen.metric,
        baseline=chosen.baseline,
        margin=margins.pop("", usual.margin),
        margins=margins,
        interval=Options(level=chosen.level, method=Method.t),
        style=read_style(chosen.style) if chosen.style else usual.style,
    )


def run(chosen: argparse.Namespace, console: Console) -> None:
    """Make the tables, write them, and print what is in them and what is doubtful."""
    options, wanted = options_of(chosen), chosen.only or list(TABLES)
    with console.phase("reading the runs"):
        tables = gather(chosen.sources)
    console.print(tables.overview)
    with console.phase("making the tables"):
        found = make_tables(wanted, tables, options)
    for table in found:
        endings = listed(path.suffix[1:] for path in save(table, chosen.out))
        rows = counted(len(table.rows), "row")
        console.print(f"wrote {chosen.out / table.name} ({endings}): {rows}")
        for note in first_few(table.notes, "notes"):
            console.print(f"  {printable(note)}")
    for name in wanted:
        if not any(table.name.partition("-")[0] == name for table in found):
            console.print(f"{name}: these runs have nothing to put in it")
