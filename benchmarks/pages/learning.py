"""Tabulate what each algorithm learns in sync, in async and at larger N, and check that it learns.

python -m benchmarks.pages.learning RUNS... [--margin 0.1] [--docs docs/learning.md]

`make test-learning` trains the runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.pages.seeds import caption_of, mean_text, select_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import rest_of
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers

WIN_RATE, REWARD, KL = "gold/win_rate", "gold/mean", "kl/sft_k1"
# Settings in which the runs of one table may differ; they differ in their seed too.
VARIED = ("algo", "mode", "correction", "updates_per_round", "group_size")
# What fixed pairs and a generator of samples differ in.
OF_PAIRS = {"generator.name", "generator.path", "generator.scores"}


@dataclass(frozen=True, order=True)
class Column:
    """A column: how stale the samples are. lagged counts as async: both give the same bits."""

    updates_per_round: int
    max_staleness: int
    mode: str

    @property
    def title(self) -> str:
        """The head of the column: `sync`, `async S=1`, `N=16`, `async S=1, N=16`."""
        many = f"N={self.updates_per_round}" if self.updates_per_round > 1 else ""
        if self.mode == "sync":
            return many or "sync"
        return ", ".join(filter(None, [f"{self.mode} S={self.max_staleness}", many]))


SYNC, ASYNC = Column(1, 0, "sync"), Column(1, 1, "async")
# The condition in each row (an algorithm with its correction) and column.
Cells = Mapping[tuple[str, Column], Cell]


@dataclass(frozen=True)
class Grid:
    """Conditions of an off-policy study: algorithms down, staleness across."""

    cells: Cells

    @property
    def rows(self) -> list[str]:
        return sorted({row for row, _ in self.cells})

    @property
    def columns(self) -> list[Column]:
        return sorted({column for _, column in self.cells})

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for cell in self.cells.values() for seed in cell.seeds})


def place_of(cell: Cell, seed: int) -> str:
    """Where a run of a condition is."""
    return str(cell.runs[seed]["place"])


def position_of(cell: Cell) -> tuple[str, Column]:
    """The row and column of a condition."""
    parts = cell.parts
    correction = "" if parts["correction"] in ("", "none") else f", {parts['correction']}"
    mode = "async" if parts["mode"] == "lagged" else parts["mode"]
    column = Column(parts["updates_per_round"], parts["max_staleness"], mode)
    return f"{parts['algo']}{correction}", column


def grid_of(cells: Sequence[Cell]) -> Grid:
    """The conditions by row and column, seeds that were trained in several sweeps together.

    Raises UserError for a seed that is there twice, and for settings that may not differ.
    """
    found: dict[tuple[str, Column], Cell] = {}
    for cell in cells:
        require_same_settings(cell, cells[0], VARIED)
        row, column = position = position_of(cell)
        if (other := found.get(position)) is None:
            found[position] = cell
            continue
        if twice := sorted(set(other.seeds) & set(cell.seeds)):
            raise UserError(
                f"seed={twice[0]} of {row}, {column.title} occurs twice, in "
                f"{place_of(other, twice[0])} and {place_of(cell, twice[0])}: pass one of them"
            )
        require_same_settings(cell, other, ("mode",))
        found[position] = replace(other, members={**other.members, **cell.members})
    return Grid(found)


def require_same_settings(cell: Cell, other: Cell, varied: Sequence[str]) -> None:
    """Raise UserError for settings that may not differ. An offline algorithm has fixed pairs in the
    place of a generator's samples."""
    own, expected = dict(rest_of(cell, varied)), dict(rest_of(other, varied))
    is_offline = "pairs" in (own.get("generator.name"), expected.get("generator.name"))
    for key in sorted({*own, *expected} - (OF_PAIRS if is_offline else set())):
        if own.get(key) != expected.get(key):
            place, others = (place_of(one, one.seeds[0]) for one in (cell, other))
            raise UserError(
                f"{key}={own.get(key)} in {place}, but {key}={expected.get(key)} in {others}: pass "
                "runs that differ in algorithm, mode, N and seed alone"
            )


def gains(cell: Cell) -> dict[int, float]:
    """Gold reward at the end less that of SFT, by seed."""
    starts = cell.starts(REWARD)
    return {seed: end - starts[seed] for seed, end in cell.scores(REWARD).items()}


def rate_text(by_seed: Mapping[int, float]) -> str:
    return mean_text({seed: 100 * value for seed, value in by_seed.items()}, 1)


def gain_text(cell: Cell) -> str:
    found = gains(cell)
    return f"{mean_text(found, 2)}, smallest {min(found.values()):.2f}"


def table(title: str, grid: Grid, text: Callable[[Cell], str]) -> Table:
    """A row for each algorithm, a column for each condition, `text` of the runs that are there."""
    rows = []
    for row in grid.rows:
        found = (grid.cells.get((row, column)) for column in grid.columns)
        rows.append([row, *("no run" if cell is None else text(cell) for cell in found)])
    return Table(title, ["algorithm", *(column.title for column in grid.columns)], rows)


def start_row(grid: Grid) -> list[str]:
    """Win-rate of SFT by column: of each seed once, whatever trained on from it."""
    texts = []
    for column in grid.columns:
        rates: dict[int, list[float]] = {}
        for cell in (cell for (_, other), cell in grid.cells.items() if other == column):
            for seed, rate in cell.starts(WIN_RATE).items():
                rates.setdefault(seed, []).append(rate)
        texts.append(rate_text({seed: fmean(same) for seed, same in rates.items()}))
    return ["SFT (start)", *texts]


def tables_of(grid: Grid) -> list[Table]:
    """Win-rate with that of the start, KL, gain."""
    title = "gold win-rate against references, %"
    rates = table(title, grid, lambda cell: rate_text(cell.scores(WIN_RATE)))
    drift = table("KL to SFT, nats a sequence", grid, lambda cell: mean_text(cell.scores(KL), 2))
    gain = table("gain in gold reward, with that of the worst seed", grid, gain_text)
    return [Table(title, rates.columns, [start_row(grid), *rates.rows]), drift, gain]


def caption(grid: Grid) -> str:
    """One sentence: over which runs the numbers are means."""
    first = next(iter(grid.cells.values()))
    sizes: dict[int, dict[str, None]] = {}
    for (row, _), cell in sorted(grid.cells.items()):
        sizes.setdefault(cell.parts["group_size"], {})[row] = None
    (usual, _), *others = sorted(sizes.items(), key=lambda item: -len(item[1]))
    exceptions = "".join(f" (K={size} in {', '.join(names)})" for size, names in others)
    prompts = first.rows[first.seeds[0]]["eval/prompts"].iloc[-1]
    return (
        f"{caption_of(grid.seeds)}: {first.parts['task']} with {first.parts['model']}, "
        f"{first.config('run.updates')} updates of {first.config('run.groups_per_update')} prompts "
        f"with K={usual} completions each{exceptions}, judged on {prompts:.0f} prompts."
    )


def missing_seeds(grid: Grid) -> list[str]:
    """A line for each condition whose seeds are not all those that occur."""
    lines = []
    for (row, column), cell in sorted(grid.cells.items()):
        if missing := [str(seed) for seed in grid.seeds if seed not in cell.seeds]:
            lines.append(f"{row}, {column.title}: no run of seed {', '.join(missing)}")
    return lines


def shortfalls(grid: Grid, margin: float) -> list[str]:
    """A line for each algorithm that has not learned in sync or async, with the numbers."""
    lines = []
    for row in grid.rows:
        for column in (SYNC, ASYNC):
            name = f"{row}, {column.title}"
            if (row, column) not in grid.cells:
                lines.append(f"{name}: no run")
                continue
            found = gains(grid.cells[row, column])
            if (mean := fmean(found.values())) < margin:
                lines.append(f"{name}: mean gain {mean:.4g} is below {margin:g}")
            for seed, gain in sorted(found.items()):
                if gain <= 0:
                    lines.append(f"{name}, seed {seed}: gain {gain:.4g} is not above 0")
    return lines


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
    grid = grid_of(with_scores(select_runs(folders, console).cells, console))
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
    failures = shortfalls(grids[0], given.margin)
    gained = f"gained at least {given.margin:g} in sync and async"
    for line in failures or [f"all {len(grids[0].rows)} algorithms {gained}"]:
        console.print(line)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
