"""What each algorithm learns, in sync, in async and at larger N: tables over seeds, and a gate.

python -m analysis.algorithms RUNS... [--margin 0.1] [--docs docs/learning.md]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from analysis.compare import Row, Run, check_scores, comparable, interval
from analysis.conditions import (
    ASYNC,
    SYNC,
    Cells,
    algorithms,
    cells_of,
    common_setup,
    conditions,
    group_sizes,
    missing_seeds,
    seeds,
)
from analysis.markdown import Table, split_at_markers, write_between_markers
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError


def caption(common: Row, cells: Cells) -> str:
    """One sentence: over what the numbers are means, and of which runs."""
    found = seeds(cells)
    listed = ", ".join(map(str, found))
    means = (
        f"One seed ({listed}), so there are no intervals"
        if len(found) == 1
        else f"Means over {len(found)} seeds ({listed}) with 95% t intervals over seeds"
    )
    (usual, _), *others = group_sizes(cells).items()
    besides = "".join(f" (K={size} in {', '.join(names)})" for size, names in others)
    return (
        f"{means}: {common['task']} with {common['model']}, {common['updates']} updates of "
        f"{common['groups_per_update']} prompts with K={usual} completions each{besides}, "
        f"judged on {common['eval.prompts']} prompts."
    )


def win_rate(run: Run) -> float:
    """Percent at the end."""
    return float(100 * run.evals[-1]["gold/win_rate"])


def drift(run: Run) -> float:
    return float(run.evals[-1]["kl/sft_k1"])


def gain(run: Run) -> float:
    """Gold reward at the end minus that of SFT."""
    return float(run.evals[-1]["gold/mean"] - run.evals[0]["gold/mean"])


def gain_text(runs: Sequence[Run]) -> str:
    gains = [gain(run) for run in runs]
    return f"{interval(gains, 2)}, smallest {min(gains):.2f}"


def table(title: str, cells: Cells, text: Callable[[Sequence[Run]], str]) -> Table:
    """A row an algorithm, a column a condition, `text` of the runs that stand there."""
    across = conditions(cells)
    rows = []
    for algorithm in algorithms(cells):
        found = [list(cells.get((algorithm, condition), {}).values()) for condition in across]
        rows.append([algorithm, *(text(runs) if runs else "no run" for runs in found)])
    return Table(title, ["algorithm", *(condition.title for condition in across)], rows)


def start_row(cells: Cells) -> list[str]:
    """Win-rate of version 0 by condition: of each seed once, whatever trained on from it."""
    texts = []
    for condition in conditions(cells):
        rates: dict[int, list[float]] = {}
        for held in (held for (_, other), held in cells.items() if other == condition):
            for seed, run in held.items():
                rates.setdefault(seed, []).append(100 * run.evals[0]["gold/win_rate"])
        texts.append(interval([statistics.fmean(same) for same in rates.values()], 1))
    return ["SFT (start)", *texts]


def tables(cells: Cells) -> list[Table]:
    """Win-rate with that of the start, KL, gain."""
    rates = table(
        "gold win-rate against references, %",
        cells,
        lambda runs: interval([win_rate(run) for run in runs], 1),
    )
    return [
        Table(rates.title, rates.columns, [start_row(cells), *rates.rows]),
        table(
            "KL to SFT, nats a sequence",
            cells,
            lambda runs: interval([drift(run) for run in runs], 2),
        ),
        table("gain in gold reward, with that of the worst seed", cells, gain_text),
    ]


def shortfalls(cells: Cells, margin: float) -> list[str]:
    """A line for each algorithm that has not learned in sync or async, with the numbers.

    NaN has not learned.
    """
    lines = []
    for algorithm, condition in product(algorithms(cells), (SYNC, ASYNC)):
        where = f"{algorithm}, {condition.title}"
        gains = {seed: gain(run) for seed, run in cells.get((algorithm, condition), {}).items()}
        if not gains:
            lines.append(f"{where}: no run")
            continue
        centre = statistics.fmean(gains.values())
        if not centre >= margin:
            lines.append(f"{where}: mean gain {centre:.4g} is below {margin:g}")
        lines += [
            f"{where}, seed {seed}: gain {own:.4g} is not above 0"
            for seed, own in sorted(gains.items())
            if not own > 0
        ]
    return lines


def report(folders: Sequence[Path], page: Path | None, console: Console) -> Cells:
    """Print the tables, and write them into the page if there is one; returns what they show."""
    if page:
        split_at_markers(page)
    runs = comparable(folders, console, check_scores)
    cells = cells_of(runs)
    said, notes, shown = caption(common_setup(runs), cells), missing_seeds(cells), tables(cells)
    for text in (said, *notes):
        console.print(text)
    for each in shown:
        console.table(each.title, each.columns, each.rows)
    if page:
        write_between_markers(page, said, notes, shown)
        console.print(f"wrote {page}")
    return cells


def is_learned(cells: Cells, margin: float, console: Console) -> bool:
    """Whether every algorithm gained enough in sync and async; says so, or who did not."""
    failures = shortfalls(cells, margin)
    for line in failures:
        console.print(line)
    if not failures:
        console.print(
            f"all {len(algorithms(cells))} algorithms gained at least {margin:g} in sync and async"
        )
    return not failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 if an algorithm gained too little, 2 if there is no table."""
    parser = argparse.ArgumentParser(description="What each algorithm learns: tables over seeds.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--margin", type=float, help="gain in gold reward that sync and async need")
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    try:
        cells = report(given.folders, given.docs, console)
    except UserError as error:
        sys.stderr.write(f"algorithms: {error}\n")
        return 2
    return int(given.margin is not None and not is_learned(cells, given.margin, console))


if __name__ == "__main__":
    sys.exit(main())
