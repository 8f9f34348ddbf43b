"""Runs side by side: tables in the terminal, with intervals, and figures.

python -m rlhf_lab_analysis.studies.compare_runs RUNS... [--out FOLDER]
(RUNS: folders of runs, or folders that hold runs; FOLDER: `comparison` in the first one)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.names import naming
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.plots.paper import paper_figure
from rlhf_lab_analysis.plots.style import write
from rlhf_lab_analysis.publication_tables.formats import plain
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.registry import make_tables
from rlhf_lab_analysis.rounding import fixed
from rlhf_lab_analysis.sources.conditions import PARTS
from rlhf_lab_analysis.studies.seeds import select_runs
from rlhf_lab_analysis.tables.summary import printable
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import WALL, WIN_RATE

FIGURES = ("fig1_win_rate_and_cost", "fig2_timelines", "fig9_reward_and_drift", "trade_off")
OVER_SEEDS = ("results", "differences")
NAN = float("nan")
PHASES = ("generate", "score", "train", "sync", "wait", "generator_wait")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its condition, the versions that were evaluated, and its rounds. name: what differs
    between the runs, and the seed."""

    name: str
    cell: Cell
    seed: int
    versions: pd.DataFrame
    rounds: pd.DataFrame

    def total(self, column: str) -> float:
        """A number of the last round: seconds are sums from the start. NaN where there is none."""
        return float(self.rounds[column].iloc[-1]) if column in self.rounds else NAN

    @property
    def wall(self) -> float:
        return self.total("seconds/wall")


def runs_of(selection: Selection) -> list[Run]:
    """Sync runs first, with which the others are compared."""
    named = naming(selection.cells)
    runs = [
        Run(f"{name}, seed {seed}", cell, seed, cell.rows[seed], cell.recorded[seed])
        for cell, name in zip(named.cells, named.names, strict=True)
        for seed in cell.seeds
        if len(cell.recorded[seed])
    ]
    return sorted(runs, key=lambda run: run.cell.parts["mode"] != "sync")


def baseline_of(run: Run, runs: Sequence[Run]) -> Run:
    """The sync run of the same seed and other parts, else the run itself."""
    parts = [part for part in PARTS if part != "mode"]

    def is_base(one: Run) -> bool:
        own = one.cell.parts
        same = all(own[part] == run.cell.parts[part] for part in parts)
        return own["mode"] == "sync" and one.seed == run.seed and same

    return next(filter(is_base, runs), run)


def win_rate(row: pd.Series) -> str:
    """In percent, with its interval over prompts where the evaluation has it."""
    rate, low, high = (100 * row.get(f"{WIN_RATE}{end}", NAN) for end in ("", "_low", "_high"))
    return f"{rate:.1f}" if pd.isna(low) else f"{rate:.1f} [{low:.1f}, {high:.1f}]"


def ratio(value: float, other: float) -> float:
    """Of two durations; NaN where the second one is none."""
    return value / other if other else NAN


def run_table(runs: Sequence[Run]) -> Table:
    """A row for each run: quality at the start and at the end, cost, lag."""
    rows = []
    for run in runs:
        first, last = run.versions.iloc[0], run.versions.iloc[-1]
        least, most = (run.total(f"lag/updates_{end}") for end in ("min", "max"))
        rows.append(
            [
                run.name,
                str(run.seed),
                win_rate(first),
                win_rate(last),
                fixed(100 * last.get(f"{WIN_RATE}_length_controlled", NAN), 1),
                fixed(last.get("kl/sft_k1", NAN), 2),
                fixed(run.wall, 1),
                fixed(ratio(baseline_of(run, runs).wall, run.wall), 2),
                fixed(run.total("seconds/device"), 0),
                fixed(100 * ratio(run.total("seconds/wait"), run.wall), 0),
                f"{fixed(least, 0)}..{fixed(most, 0)}",
            ]
        )
    columns = ["run", "seed", "SFT win-rate % [95%]", "win-rate % [95%]", "at equal length %"]
    columns += ["KL nats", "wall s", "speed-up", "core s", "waiting %", "lag updates"]
    return Table("runs: intervals are over prompts (Wilson), not over seeds", columns, rows)


def phase_table(runs: Sequence[Run]) -> Table:
    """Milliseconds of an average round by phase, and the share of wall-clock outside of them."""
    rows = [
        [
            run.name,
            *(fixed(1000 * run.total(f"seconds/{phase}") / len(run.rounds), 0) for phase in PHASES),
            fixed(100 * ratio(run.total("seconds/other"), run.wall), 1),
        ]
        for run in runs
    ]
    heads = [f"{phase.replace('_', ' ')} ms" for phase in PHASES]
    return Table("an average round", ["run", *heads, "other %"], rows)


def print_over_seeds(tables: Tables, selection: Selection, console: Console) -> None:
    """Print the publication tables of these conditions, with intervals over seeds."""
    metrics = [name for name in (WIN_RATE, WALL) if any(c.has(name) for c in selection.cells)]
    with console.phase("making tables over seeds"):
        found = make_tables(OVER_SEEDS, tables, TableOptions(metrics))
    for table in found:
        console.print(f"\n{table.caption}")
        rows = [[plain(entry) for entry in row] for row in table.rows]
        console.table(table.name, table.columns, rows)
        for note in table.notes:
            console.print(f"  {note}")


def draw(selection: Selection, out: Path, console: Console) -> None:
    """Write the figures that these runs allow, without CSV files, which would be read as runs."""
    out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        try:
            with console.phase(f"drawing {name}"):
                write(paper_figure(name, selection).figure, out / name, ["png", "pdf"])
        except UserError as error:
            console.print(f"not drawn: {printable(str(error))}")
            continue
        console.print(f"wrote {out / name}.png and .pdf")


def report(folders: Sequence[Path], out: Path, console: Console) -> None:
    """Print the tables, write the figures."""
    with console.phase("reading the runs"):
        tables, selection = select_runs(folders, console)
        runs = runs_of(selection)
    for table in (run_table(runs), phase_table(runs)):
        console.table(table.title, table.columns, table.rows)
    print_over_seeds(tables, selection, console)
    draw(selection, out, console)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--out", type=Path, help="folder of the figures (RUNS/comparison)")


def run(given: argparse.Namespace, console: Console) -> None:
    """Compare the runs."""
    report(given.folders, given.out or given.folders[0] / "comparison", console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be compared."""
    parser = argparse.ArgumentParser(description="Compare runs: tables and figures.")
    add_options(parser)
    given = parser.parse_args(arguments)
    return exit_code("compare", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
