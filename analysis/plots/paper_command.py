"""`rlhf-lab figures`: the figures of the paper that runs allow."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.packages.by_open_rl_benchmark import by_open_rl_benchmark
from rlhf_lab_analysis.packages.by_rliable import by_rliable
from rlhf_lab_analysis.plots.command import formats_of, save, selection_of
from rlhf_lab_analysis.plots.panels import Form
from rlhf_lab_analysis.plots.paper import FIGURES, paper_figure
from rlhf_lab_analysis.plots.style import Style, read_style
from rlhf_lab_analysis.ranges import listed
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.summary import printable, show_damage
from rlhf_lab_analysis.tables.table import make_tables
from rlhf_lab_analysis.words import DRIFTS, KL, WIN_RATE

PACKAGES = ("rliable", "openrlbenchmark")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="*", metavar="RUNS", help="folders of runs, or tables")
    add("--out", type=Path, default=Path("figures"), help="folder (default: figures)")
    add("--only", nargs="+", default=[], metavar="NAME", help="these figures alone")
    add("--formats", default="png,pdf", help="of png, pdf, svg (default: png,pdf)")
    add("--drift", default=KL, choices=DRIFTS, help="what axes of drift show (default: KL)")
    add("--style", type=Path, metavar="FILE", help="YAML, as of `rlhf-lab plot`")
    add(
        "--with",
        dest="packages",
        action="append",
        default=[],
        choices=PACKAGES,
        help="also the numbers of this package itself, beside ours (repeat)",
    )
    add("--list", action="store_true", help="name the figures and what they show")


def check(options: argparse.Namespace) -> None:
    """Raises UserError without runs, for figures that there are not, and packages not installed."""
    if not options.sources:
        raise UserError("no runs: pass a folder of runs, or FILE.parquet (--list names figures)")
    if unknown := [name for name in options.only if name not in FIGURES]:
        raise UserError(f"--only {unknown[0]}: choose from {', '.join(FIGURES)}")
    for package in options.packages:
        if find_spec(package) is None:
            raise UserError(
                f"--with {package}: it is not installed: pip install 'rlhf-lab[analysis]'"
            )


def run(options: argparse.Namespace, console: Console) -> None:
    """List, or draw. Raises UserError as `check` does, and for runs of which nothing is drawn."""
    if options.list:
        console.print("\n".join(f"{name}: {spec.title}" for name, spec in FIGURES.items()))
        return
    check(options)
    formats = formats_of(options.formats)
    style = read_style(options.style) if options.style else Style()
    with console.phase("reading the runs"):
        reading = read_sources(options.sources)
        tables = make_tables(reading)
        selection = selection_of(tables, Form.ends)
    console.print(tables.overview)
    show_damage(tables, console)
    for line in selection.left_out:
        console.print(printable(line))
    draw_all(selection, options, formats, style, console)
    for package in options.packages:
        made = (
            by_rliable(cells(tables), WIN_RATE, options.out)
            if package == "rliable"
            else by_open_rl_benchmark(reading.records, WIN_RATE, options.out)
        )
        console.print(f"wrote {listed(made)}")


def draw_all(
    selection: Selection,
    options: argparse.Namespace,
    formats: Sequence[str],
    style: Style,
    console: Console,
) -> None:
    """Draw what can be drawn, and name what is missing of the others. Raises UserError if nothing
    can be drawn."""
    drawn = 0
    for name in options.only or FIGURES:
        try:
            with console.phase(f"drawing {name}"):
                made = paper_figure(name, selection, options.drift, style)
                save(made, options.out / name, formats)
        except UserError as error:
            console.print(f"not drawn: {name}: {printable(str(error).splitlines()[0])}")
            continue
        console.print(f"drew {options.out / name}: {FIGURES[name].title}")
        drawn += 1
    if not drawn:
        raise UserError("no figure can be drawn of these runs: `rlhf-lab plot` draws any runs")
