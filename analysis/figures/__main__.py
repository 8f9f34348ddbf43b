"""python -m analysis.figures TABLES_OR_SOURCES... --out FOLDER: all figures that runs allow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.command import exit_code
from analysis.comparison.selection import Selection, cells
from analysis.figures.registry import FIGURES, drawn_of, entry_of, missing
from analysis.figures.sheet import Drawn
from analysis.figures.style import METADATA, write
from analysis.tables.gather import gather
from analysis.tables.store import load
from analysis.tables.summary import printable
from analysis.tables.table import Tables
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

STORED = ".parquet"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(
        prog="python -m analysis.figures", description="Figures with their data and captions."
    )
    add = found.add_argument
    add("sources", nargs="*", metavar="TABLES_OR_SOURCE",
        help="FILE.parquet of `python -m analysis.tables --out`, or what that reads")  # fmt: skip
    add("--out", type=Path, default=Path("figures"), help="folder (default: figures)")
    add("--only", nargs="+", default=[], metavar="NAME", help="these figures alone")
    add("--formats", default="png,pdf,svg", help="of png, pdf, svg (default: all)")
    add("--cache", type=Path, help="folder to keep what wandb's server sent")
    add("--list", action="store_true", help="name all figures and what they show")
    return found


def read(sources: Sequence[str], cache: Path | None) -> Tables:
    """The tables of saved files and of sources together. Raises UserError if there are none."""
    if not sources:
        raise UserError("no runs: pass a folder of runs, or FILE.parquet (--list names figures)")
    stored = [load(Path(source)) for source in sources if is_stored(source)]
    others = [source for source in sources if not is_stored(source)]
    return together([*stored, *([gather(others, cache=cache)] if others else [])])


def is_stored(source: str) -> bool:
    return source.endswith(STORED)


def together(tables: Sequence[Tables]) -> Tables:
    """Several tables as one. Raises UserError if one run is in two of them."""
    if len(tables) == 1:
        return tables[0]
    runs = pd.concat([each.runs for each in tables], ignore_index=True)
    if runs["run"].duplicated().any():
        twice = runs["run"][runs["run"].duplicated()].iloc[0]
        raise UserError(f"run {twice} is in two of the tables: pass one of them")
    return Tables(
        pd.concat([each.points for each in tables], ignore_index=True),
        pd.concat([each.versions for each in tables], ignore_index=True),
        runs,
        tuple(finding for each in tables for finding in each.findings),
    )


def formats_of(text: str) -> list[str]:
    """The formats by name. Raises UserError for an unknown one."""
    found = [kind for kind in text.split(",") if kind]
    if not found or any(kind not in METADATA for kind in found):
        raise UserError(f"--formats {text}: choose from {','.join(METADATA)}")
    return found


def save(made: Drawn, place: Path, formats: Sequence[str]) -> None:
    """NAME.png and so on, NAME.csv with what is drawn, NAME.txt with the caption."""
    write(made.figure, place, formats)
    made.data.to_csv(place.with_name(f"{place.name}.csv"), index=False, lineterminator="\n")
    place.with_name(f"{place.name}.txt").write_text(made.caption + "\n", encoding="utf-8")


def draw_all(
    selection: Selection, given: argparse.Namespace, formats: Sequence[str], console: Console
) -> None:
    """Draw what can be drawn, name the rest. Raises UserError if nothing can."""
    names = given.only or list(FIGURES)
    lacking = {name: text for name in names if (text := missing(name, selection))}
    for name, text in lacking.items():
        console.print(f"not drawn: {name}: {printable(text)}")
    if len(lacking) == len(names):
        raise UserError("no figure can be drawn of these runs: the lines above say what they lack")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name not in lacking:
            made = drawn_of(name, selection)
            save(made, given.out / name, formats)
            doubts = f", {len(made.warnings)} warnings in its caption" if made.warnings else ""
            console.print(f"drew {given.out / name}: {FIGURES[name].shows}{doubts}")


def run(given: argparse.Namespace, console: Console) -> None:
    """List, or read and draw."""
    formats = formats_of(given.formats)
    for name in given.only:
        entry_of(name)
    if given.list:
        for entry in FIGURES.values():
            console.print(f"{entry.name}: {entry.shows}")
        return
    tables = read(given.sources, given.cache)
    console.print(tables.said)
    selection = cells(tables)
    for line in selection.left_out:
        console.print(printable(line))
    draw_all(selection, given, formats, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be drawn."""
    given = parser().parse_args(arguments)
    return exit_code("figures", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
