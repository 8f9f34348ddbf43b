"""`rlhf-lab publication-tables`: tables of any runs; and the same call from Python."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.plots.style import read_style
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.differences import differences
from rlhf_lab_analysis.publication_tables.formats import (
    FORMATS,
    PublicationTable,
    check_heads,
    save,
)
from rlhf_lab_analysis.publication_tables.options import SHORT, TableOptions
from rlhf_lab_analysis.publication_tables.results import results, sft
from rlhf_lab_analysis.publication_tables.run_list import run_list
from rlhf_lab_analysis.publication_tables.settings import settings
from rlhf_lab_analysis.ranges import first_few, listed
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.summary import printable, show_damage
from rlhf_lab_analysis.tables.table import Tables

TABLES: Mapping[str, Callable[[Tables, Conditions, TableOptions], list[PublicationTable]]] = {
    "results": results,
    "differences": differences,
    "sft": sft,
    "settings": settings,
    "runs": run_list,
}


def make_tables(
    names: str | Sequence[str], tables: Tables, options: TableOptions | None = None
) -> list[PublicationTable]:
    """The tables of these names, as the style has them; none of a name for which these runs have
    nothing. Raises UserError for an unknown name, and for what the style names that is not
    there."""
    options, wanted = options or TableOptions(), [names] if isinstance(names, str) else names
    if unknown := [name for name in wanted if name not in TABLES]:
        raise UserError(f"--only {unknown[0]}: pass one of {', '.join(TABLES)}")
    conditions = Conditions(cells(tables), options.style)
    made = []
    for name in wanted:
        for table in TABLES[name](tables, conditions, options):
            left_out = () if name == "runs" else conditions.left_out
            made.append(replace(table, notes=(*table.notes, *left_out)))
    check_heads(options.style, made)
    return [table.styled(options.style) for table in made]


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
    show_damage(tables, console)
    with console.phase("making the tables"):
        found = make_tables(wanted, tables, options)
        save([table for table in found if table.rows], chosen.out)
    for table in found:
        if table.rows:
            rows = counted(len(table.rows), "row")
            console.print(f"wrote {chosen.out / table.name} ({listed(FORMATS)}): {rows}")
        else:
            console.print(f"{table.name}: not written, since it has no row")
        for note in first_few(table.notes, "notes"):
            console.print(f"  {printable(note)}")
    for name in wanted:
        if not any(table.name.partition("-")[0] == name for table in found):
            console.print(f"{name}: these runs have nothing to put in it")
