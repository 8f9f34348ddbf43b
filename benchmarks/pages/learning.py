"""Tabulate what each algorithm learns in sync, in async and at larger N, and check that it learns.

python -m benchmarks.pages.learning RUNS... [--margin 0.1] [--docs docs/learning.md]

`make test-learning` trains the runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.pages.grid import ASYNC, SYNC, Grid, columns_of, grid_of, rows_of, seeds_of
from benchmarks.pages.seeds import caption_of, mean_text, select_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers

WIN_RATE, REWARD, KL = "gold/win_rate", "gold/mean", "kl/sft_k1"


def gains(cell: Cell) -> dict[int, float]:
    """Gold reward at the end less that of SFT, by seed."""
    starts = cell.starts(REWARD)
    return {seed: end - starts[seed] for seed, end in cell.scores(REWARD).items()}


def in_percent(by_seed: Mapping[int, float]) -> dict[int, float]:
    return {seed: 100 * value for seed, value in by_seed.items()}


def gain_text(cell: Cell) -> str:
    found = gains(cell)
    return f"{mean_text(found, 2)}, smallest {min(found.values()):.2f}"


def table(title: str, grid: Grid, text: Callable[[Cell], str]) -> Table:
    """A row for each algorithm, a column for each condition, `text` of the runs that are there."""
    columns = columns_of(grid)
    rows = [
        [row, *(text(grid[row, one]) if (row, one) in grid else "no run" for one in columns)]
        for row in rows_of(grid)
    ]
    return Table(title, ["algorithm", *(column.title for column in columns)], rows)


def start_row(grid: Grid) -> list[str]:
    """Win-rate of SFT by column: of each seed once, whatever trained on from it."""
    texts = []
    for column in columns_of(grid):
        rates: dict[int, list[float]] = {}
        for cell in (cell for (_, other), cell in grid.items() if other == column):
            for seed, rate in in_percent(cell.starts(WIN_RATE)).items():
                rates.setdefault(seed, []).append(rate)
        texts.append(mean_text({seed: fmean(same) for seed, same in rates.items()}, 1))
    return ["SFT (start)", *texts]


def tables_of(grid: Grid) -> list[Table]:
    """Win-rate with that of the start, KL, gain."""
    rates = table(
        "gold win-rate against references, %",
        grid,
        lambda cell: mean_text(in_percent(cell.scores(WIN_RATE)), 1),
    )
    drift = table("KL to SFT, nats a sequence", grid, lambda cell: mean_text(cell.scores(KL), 2))
    gain = table("gain in gold reward, with that of the worst seed", grid, gain_text)
    return [Table(rates.title, rates.columns, [start_row(grid), *rates.rows]), drift, gain]


def caption(grid: Grid) -> str:
    """One sentence: over which runs the numbers are means."""
    first = next(iter(grid.values()))
    sizes: dict[int, list[str]] = {}
    for (row, _), cell in sorted(grid.items()):
        names = sizes.setdefault(cell.parts["group_size"], [])
        names += [] if row in names else [row]
    (usual, _), *others = sorted(sizes.items(), key=lambda item: -len(item[1]))
    exceptions = "".join(f" (K={size} in {', '.join(names)})" for size, names in others)
    prompts = first.rows[first.seeds[0]]["eval/prompts"].iloc[-1]
    return (
        f"{caption_of(seeds_of(grid))}: {first.parts['task']} with {first.parts['model']}, "
        f"{first.config('run.updates')} updates of {first.config('run.groups_per_update')} prompts "
        f"with K={usual} completions each{exceptions}, judged on {prompts:.0f} prompts."
    )


def missing_seeds(grid: Grid) -> list[str]:
    """A line for each condition whose seeds are not all those that occur."""
    lines = []
    for (row, column), cell in sorted(grid.items()):
        if missing := [str(seed) for seed in seeds_of(grid) if seed not in cell.seeds]:
            lines.append(f"{row}, {column.title}: no run of seed {', '.join(missing)}")
    return lines


def shortfalls(grid: Grid, margin: float) -> list[str]:
    """A line for each algorithm that has not learned in sync or async, with the numbers."""
    lines = []
    for row, column in product(rows_of(grid), (SYNC, ASYNC)):
        name = f"{row}, {column.title}"
        if (row, column) not in grid:
            lines.append(f"{name}: no run")
            continue
        found = gains(grid[row, column])
        if (mean := fmean(found.values())) < margin:
            lines.append(f"{name}: mean gain {mean:.4g} is below {margin:g}")
        lines += [
            f"{name}, seed {seed}: gain {gain:.4g} is not above 0"
            for seed, gain in sorted(found.items())
            if gain <= 0
        ]
    return lines


def is_learned(grid: Grid, margin: float, console: Console) -> bool:
    """Whether every algorithm gained enough in sync and async. Prints which did not."""
    failures = shortfalls(grid, margin)
    for line in failures:
        console.print(line)
    if not failures:
        console.print(
            f"all {len(rows_of(grid))} algorithms gained at least {margin:g} in sync and async"
        )
    return not failures


def with_scores(cells: Sequence[Cell], console: Console) -> list[Cell]:
    """The conditions of which every run has all scores. Prints which ones are left out."""
    found = []
    for cell in cells:
        if missing := [column for column in (WIN_RATE, REWARD, KL) if not cell.has(column)]:
            console.print(f"left out: {cell.condition} (a run has no {', '.join(missing)}, or NaN)")
        else:
            found.append(cell)
    if not found:
        raise UserError(f"no run has {WIN_RATE}, {REWARD} and {KL}: evaluate with a gold judge")
    return found


def report(folders: Sequence[Path], page: Path | None, console: Console) -> Grid:
    """Print the tables, write them into the page if there is one, and return what they show."""
    if page:
        split_at_markers(page)
    grid = grid_of(with_scores(select_runs(folders, console)[1].cells, console))
    publish(caption(grid), missing_seeds(grid), tables_of(grid), page, console)
    return grid


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 if an algorithm gained too little, 2 if there is no table."""
    parser = argparse.ArgumentParser(description="What each algorithm learns: tables over seeds.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--margin", type=float, help="gain in gold reward that sync and async need")
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    grids: list[Grid] = []
    code = exit_code("learning", lambda: grids.append(report(given.folders, given.docs, console)))
    if code or given.margin is None:
        return code
    return int(not is_learned(grids[0], given.margin, console))


if __name__ == "__main__":
    sys.exit(main())
