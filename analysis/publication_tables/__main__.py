"""python -m analysis.publication_tables SOURCE... --out FOLDER: LaTeX, Markdown and CSV."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.command import exit_code
from analysis.publication_tables.formats import save
from analysis.publication_tables.options import TableOptions
from analysis.publication_tables.registry import TABLES, selected
from analysis.statistics.results import OF_ANY_NUMBER, Method, Options
from analysis.tables.gather import gather
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    usual = TableOptions()
    found = argparse.ArgumentParser(
        prog="python -m analysis.publication_tables", description="Tables of runs, with intervals."
    )
    add = found.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="runs, or saved tables")
    add("--out", type=Path, required=True, metavar="FOLDER")
    add("--only", action="append", choices=list(TABLES), help="this table (repeat); else all")
    add("--metric", action="append", default=[], help="a column of versions (repeat)")
    add("--by", action="append", default=[], metavar="KEY", help="tells conditions apart too")
    add("--measure", default=usual.measure, help="of seeds: mean, iqm or median")
    add("--baseline", default="", metavar="PART=VALUE", help="such as N=1 or mode=sync")
    add(
        "--margin",
        action="append",
        default=[],
        metavar="[METRIC=]SIZE",
        help=f"the largest difference that does not matter; of shares {usual.margin}",
    )
    add("--target", type=float, help="the win-rate to reach; else half of the best gain")
    add("--axis", action="append", default=[], help=f"else {', '.join(usual.axes)}")
    add("--method", choices=list(OF_ANY_NUMBER), default=Method.t)
    add("--level", type=float, default=usual.interval.level)
    return found


def options_of(given: argparse.Namespace) -> TableOptions:
    """The options as the tables take them. Raises UserError for a margin that is none."""
    usual, margin, margins = TableOptions(), TableOptions().margin, {}
    for text in given.margin:
        metric, _, size = text.rpartition("=")
        if metric:
            margins[metric] = number("--margin", size)
        else:
            margin = number("--margin", size)
    return TableOptions(
        metrics=tuple(given.metric),
        measure=given.measure,
        baseline=given.baseline,
        margin=margin,
        margins=margins,
        target=given.target,
        axes=tuple(given.axis) or usual.axes,
        interval=Options(level=given.level, method=Method(given.method)),
    )


def number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{option} {text}: pass a number, such as 0.02") from None


def run(given: argparse.Namespace, console: Console) -> None:
    """Make the tables and write them."""
    options = options_of(given)
    tables = gather(given.sources, by=given.by)
    selection = selected(tables)
    console.print(tables.overview)
    warned: dict[str, None] = {}
    for name in given.only or TABLES:
        made = TABLES[name](tables, selection, options)
        if not made:
            console.print(f"{name}: these runs have nothing to put in it")
        for table in made:
            paths = save(table, given.out)
            endings = ", ".join(path.suffix[1:] for path in paths)
            console.print(f"wrote {given.out / table.name} ({endings}): {len(table.rows)} rows")
            warned |= dict.fromkeys(table.warnings)
    for warning in warned:
        console.print(f"  {warning}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be written."""
    given = parser().parse_args(arguments)
    return exit_code("publication_tables", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
