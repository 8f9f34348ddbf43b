"""All figures that runs allow.

python -m rlhf_lab_analysis.figures TABLES_OR_SOURCES... --out FOLDER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.figures.catalogue import FIGURES, draw_pages, missing, page_name, spec_of
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.style import METADATA, write
from rlhf_lab_analysis.packages.option import add_with, beside
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.summary import printable
from rlhf_lab_analysis.tables.table import make_tables
from rlhf_lab_analysis.words import DRIFTS, KL, WIN_RATE


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.figures",
        description="Figures with their data and captions.",
    )
    add_options(command)
    return command


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="*", metavar="TABLES_OR_SOURCE",
        help="FILE.parquet of `rlhf_lab_analysis.tables --out`, or what that reads")  # fmt: skip
    add("--out", type=Path, default=Path("figures"), help="folder (default: figures)")
    add("--only", nargs="+", default=[], metavar="NAME", help="these figures alone")
    add("--formats", default="png,pdf,svg", help="of png, pdf, svg (default: all)")
    add("--drift", default=KL, choices=DRIFTS, help="drift of the paper's figures (default: KL)")
    add_with(parser)
    add("--list", action="store_true", help="name all figures and what they show")
    add("-v", "--verbose", action="store_true", help="also list what each missing figure needs")


def formats_of(text: str) -> list[str]:
    """The formats by name. Raises UserError for an unknown one."""
    kinds = [kind for kind in text.split(",") if kind]
    if not kinds or any(kind not in METADATA for kind in kinds):
        raise UserError(f"--formats {text}: choose from {','.join(METADATA)}")
    return kinds


def save(drawn: DrawnFigure, path: Path, formats: Sequence[str]) -> None:
    """NAME.png and so on, NAME.csv with what is drawn, NAME.txt with the caption."""
    write(drawn.figure, path, formats)
    drawn.data.to_csv(path.with_name(f"{path.name}.csv"), index=False, lineterminator="\n")
    path.with_name(f"{path.name}.txt").write_text(drawn.caption + "\n", encoding="utf-8")


def draw_all(
    selection: Selection, options: argparse.Namespace, formats: Sequence[str], console: Console
) -> None:
    """Draw what can be drawn, then name or count the rest. Raises UserError if nothing can."""
    names = options.only or list(FIGURES)
    lacking = {name: text for name in names if (text := missing(name, selection, options.drift))}
    if len(lacking) == len(names):
        report_lacking(lacking, True, console)
        raise UserError("no figure can be drawn of these runs: the lines above name what they lack")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in lacking:
            pages = draw_pages(name, selection, options.drift)
            for place, drawn in enumerate(pages):
                save(drawn, options.out / page_name(name, place), formats)
            warnings = len({text for drawn in pages for text in drawn.warnings})
            warned = f", {counted(warnings, 'warning')} in its caption" if warnings else ""
            console.print(f"drew {options.out / name}: {FIGURES[name].title}{warned}")
    report_lacking(lacking, options.verbose or bool(options.only), console)


def report_lacking(lacking: Mapping[str, str], has_reasons: bool, console: Console) -> None:
    """Name each figure that these runs do not allow with what it needs, or count them."""
    if has_reasons:
        for name, text in lacking.items():
            console.print(f"not drawn: {name}: {printable(text)}")
    elif lacking:
        console.print(
            f"not drawn: {counted(len(lacking), 'figure')} that need other runs (-v: which)"
        )


def run(options: argparse.Namespace, console: Console) -> None:
    """List, or read and draw."""
    formats = formats_of(options.formats)
    for name in options.only:
        spec_of(name)
    if options.list:
        for spec in FIGURES.values():
            console.print(f"{spec.name}: {spec.title}")
        return
    if not options.sources:
        raise UserError("no runs: pass a folder of runs, or FILE.parquet (--list names figures)")
    reading = read_sources(options.sources)
    tables = make_tables(reading)
    console.print(tables.overview)
    selection = cells(tables)
    for line in selection.left_out:
        console.print(printable(line))
    draw_all(selection, options, formats, console)
    for one in beside(options.packages, selection, reading.records, WIN_RATE, options.out):
        console.print(f"wrote {one.write(options.out)}: {one.title}")
        for path in one.drawn:
            console.print(f"drew {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be drawn."""
    options = parser().parse_args(arguments)
    return exit_code("figures", lambda: run(options, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
