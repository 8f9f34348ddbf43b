"""Predictions of larger runs, and their scores where these have been run.

python -m rlhf_lab_analysis.predictions [RUNS...] [--remake]

Without RUNS, the tracked tables of the benchmark. With --remake, each is made again from the runs
that it names, so that its number and interval can be compared with those that were written down.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.benchmark.kept import BY, TABLES
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.predictions.rows import FOLDER, Prediction, Prompts, read_predictions
from rlhf_lab_analysis.predictions.scoring import Score, remade, score, summary
from rlhf_lab_analysis.tables.gather import gather

COLUMNS = ["prediction", "win-rate", "outcome", "inside", "interval score", "written", "of"]


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.predictions", description=__doc__
    )
    found.add_argument("runs", nargs="*", metavar="RUNS", help="without any, the tracked tables")
    found.add_argument(
        "--remake", action="store_true", help="make each number again from the runs it names"
    )
    found.add_argument("--folder", type=Path, default=FOLDER, help="the files of predictions")
    return found


def run(given: argparse.Namespace, console: Console) -> None:
    """Print every prediction with its score, or made again."""
    predictions = read_predictions(given.folder)
    selection = cells(gather(given.runs or [str(TABLES)], by=BY))
    if given.remake:
        for one in predictions:
            console.print(f"{one.name}: {made_text(one)}; made again {again(one, selection)}")
        return
    scored = [(one, score(one, selection)) for one in predictions]
    console.table("Predictions", COLUMNS, [row_of(*pair) for pair in scored])
    for one in predictions:
        console.print(f"{one.name}: {one.text}")
    for title, is_known in (("made before its runs", False), ("known when written", True)):
        found = [made for one, made in scored if made and one.known is is_known]
        console.print(f"{title}: {summary(found)}")


def made_text(one: Prediction) -> str:
    return f"{one.number:.3f} [{one.low:.3f}, {one.high:.3f}] ({100 * one.level:.4g}%)"


def again(one: Prediction, selection: Selection) -> str:
    made = remade(one, selection)
    return f"{made.point:.3f} [{made.low:.3f}, {made.high:.3f}], {made.basis.text}"


def row_of(one: Prediction, made: Score | None) -> list[str]:
    """A prediction as a row: the outcome in the unit of the number, the score in points."""
    condition = " ".join(f"{key}={value}" for key, value in one.of.items())
    if one.prompts is Prompts.way:
        condition += ", on the prompts of the way"
    day = f"{one.written}{', outcome known' if one.known else ''}"
    if made is None:
        return [one.name, made_text(one), "waits for runs", "", "", day, condition]
    outcome = f"{made.outcome:.3f} ({made.num_seeds} stage seeds)"
    inside = "yes" if made.is_inside else "no"
    return [one.name, made_text(one), outcome, inside, f"{100 * made.score:.1f}", day, condition]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    given = parser().parse_args(arguments)
    return exit_code("predictions", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
