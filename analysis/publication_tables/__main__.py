"""Tables of results in LaTeX, Markdown and CSV.

python -m rlhf_lab_analysis.publication_tables SOURCE... --out FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.publication_tables.formats import save
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.registry import TABLES, selected, tables_of
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method, Options
from rlhf_lab_analysis.tables.gather import gather


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.publication_tables",
        description="Tables of runs, with intervals.",
    )
    add_options(command)
    return command


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    usual, add = TableOptions(), parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="runs, or saved tables")
    add("--out", type=Path, required=True, metavar="FOLDER")
    add("--only", action="append", choices=list(TABLES), help="this table (repeat); else all")
    add("--metric", action="append", default=[], help="a column of versions (repeat)")
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


def options_of(chosen: argparse.Namespace) -> TableOptions:
    """The options as the tables take them. Raises UserError for a margin that is none."""
    usual, margin, margins = TableOptions(), TableOptions().margin, {}
    for text in chosen.margin:
        metric, _, size = text.rpartition("=")
        if metric:
            margins[metric] = number("--margin", size)
        else:
            margin = number("--margin", size)
    return TableOptions(
        metrics=tuple(chosen.metric),
        measure=chosen.measure,
        baseline=chosen.baseline,
        margin=margin,
        margins=margins,
        target=chosen.target,
        axes=tuple(chosen.axis) or usual.axes,
        interval=Options(level=chosen.level, method=Method(chosen.method)),
    )


def number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{option} {text}: pass a number, such as 0.02") from None


def run(chosen: argparse.Namespace, console: Console) -> None:
    """Make the tables and write them."""
    options = options_of(chosen)
    with console.phase("reading the runs"):
        tables = gather(chosen.sources)
        selection = selected(tables)
    console.print(tables.overview)
    warned: dict[str, None] = {}
    for name in chosen.only or TABLES:
        with console.phase(f"making {name}"):
            found = tables_of(name, tables, selection, options)
        if not found:
            console.print(f"{name}: these runs have nothing to put in it")
        for table in found:
            paths = save(table, chosen.out)
            endings = ", ".join(path.suffix[1:] for path in paths)
            console.print(f"wrote {chosen.out / table.name} ({endings}): {len(table.rows)} rows")
            warned |= dict.fromkeys(table.warnings)
    for warning in warned:
        console.print(f"  {warning}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be written."""
    chosen = parser().parse_args(arguments)
    return exit_code("publication_tables", lambda: run(chosen, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
