"""`rlhf-lab compare`: runs and findings, means with differences in pairs of seeds, and figures: the
forms of `rlhf-lab plot` in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.baselines import usual_setting
from rlhf_lab_analysis.comparison.names import naming
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.plots.figure import Plot, draw
from rlhf_lab_analysis.plots.panels import Form, Request
from rlhf_lab_analysis.plots.style import Style, write
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.summary import printable, show
from rlhf_lab_analysis.words import KL, WALL, WIN_RATE, short_label

# What is compared at the end, of what all conditions have.
NUMBERS = (WIN_RATE, KL, WALL)
ENDS, DIFFERENCES = "ends", "differences"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("folders", nargs="+", metavar="RUNS", help="folders of runs, or tables")
    add("--diff", default="", metavar="BASELINE",
        help="KEY=VALUE or a condition's name (default: mode=sync, N=1, ...)")  # fmt: skip
    add("--out", type=Path, help="folder of the figures (RUNS/comparison)")


def run(given: argparse.Namespace, console: Console) -> None:
    """Print the runs and the tables, write the figures. Raises UserError where no run counts."""
    with console.phase("reading the runs"):
        tables = gather(given.folders)
        selection = cells(tables)
    show(tables, console)
    for line in selection.left_out:
        console.print(printable(line))
    if not selection.cells:
        raise UserError(
            f"no finished, evaluated run in {', '.join(given.folders)}: `rlhf-lab runs` lists what "
            "is there"
        )
    first = Path(given.folders[0])
    out = given.out or (first if first.is_dir() else first.parent) / "comparison"
    for name, request in requests_of(selection, given.diff).items():
        try:
            with console.phase(f"drawing {name}"):
                made = draw(selection, request, Style())
                # No CSV: beside runs it would be a finding of whatever reads them next.
                written = write(made.figure, out / name, ["png", "pdf"])
        except UserError as error:
            console.print(f"not drawn: {name}: {printable(str(error))}")
            continue
        for line in made.notes:
            console.print(printable(line))
        console.print(printable(made.sentence))
        if name in (ENDS, DIFFERENCES):
            print_means(name, made, console)
        console.print(f"wrote {', '.join(map(str, written))}")


def requests_of(selection: Selection, diff: str) -> dict[str, Request]:
    """The figures by name. diff: the baseline, the usual one where it is empty."""
    known = naming(selection.cells)
    numbers = [name for name in NUMBERS if all(cell.has(name) for cell in selection.cells)]
    usual = "=".join(usual_setting(known.cells, known.keys) or (known.names[0],))
    found = {
        "curves": Request(),
        ENDS: Request(numbers, form=Form.ends),
        DIFFERENCES: Request(numbers, form=Form.ends, diff=diff or usual),
        "trade_off": Request(form=Form.front),
        "timelines": Request(form=Form.timeline),
    }
    return {name: one for name, one in found.items() if name != DIFFERENCES or len(known.names) > 1}


def print_means(name: str, made: Plot, console: Console) -> None:
    """Print the means over seeds at the end with their intervals, a row for each condition."""
    means = made.data[made.data["seed"] == "mean"]
    numbers = list(dict.fromkeys(means["y_name"]))
    rows = [
        [
            " ".join(filter(None, key)),
            str(own["n"].iloc[0]),
            *map(mean_text, own.to_dict("records")),
        ]
        for key, own in means.groupby(["panel", "condition"], sort=False)
    ]
    heads = ["condition", "seeds", *map(short_label, numbers)]
    console.table(name, heads, [[printable(text) for text in row] for row in rows])


def mean_text(row: dict[Any, Any]) -> str:
    """A mean with its interval, which takes three seeds."""
    point, low, high = (number_text(row[name]) for name in ("y", "low", "high"))
    return point if pd.isna(row["low"]) else f"{point} [{low}, {high}]"
