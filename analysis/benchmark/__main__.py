"""The tracked benchmark.

python -m rlhf_lab_analysis.benchmark [RUNS...] [--pages FOLDER] [--picture FILE.png]

With RUNS, their tables replace the stored ones. With --pages, the site's pages of verdicts, results
and stages are written; with --picture, sync beside async in one time scale.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab_analysis.benchmark.kept import (
    COLLAPSES,
    TABLES,
    load_benchmark,
    load_beside,
    save_benchmark,
)
from rlhf_lab_analysis.benchmark.page import judge, pages
from rlhf_lab_analysis.benchmark.timeline_picture import write_timeline_picture
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.registry.decisions import core_hours
from rlhf_lab_analysis.comparison.selection import Selection, cells


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.benchmark", description=__doc__
    )
    found.add_argument("runs", nargs="*", metavar="RUNS", help="whose tables are to be kept")
    found.add_argument("--cost", action="store_true", help="print what the kept runs took")
    found.add_argument("--tables", type=Path, default=TABLES, help="where they are kept")
    found.add_argument("--pages", type=Path, metavar="FOLDER", help="where to write the pages")
    found.add_argument("--picture", type=Path, help="the timeline of sync and async to write")
    return found


def run(given: argparse.Namespace, console: Console) -> None:
    """Store the given runs, decide all claims, and write what the options request."""
    if given.runs:
        save_benchmark(given.runs, given.tables)
    if given.cost:
        collapses = load_beside(given.tables.with_name(COLLAPSES.name))
        kept = [load_benchmark(given.tables), *([collapses] if collapses else [])]
        for line in cost_lines(*map(cells, kept)):
            console.print(line)
        return
    judged = judge(given.tables)
    for made in (one.answer for one in judged.decided):
        console.print(f"{made.evidence} {made.verdict}: {made.claim} ({made.setting})")
    if given.pages:
        given.pages.mkdir(parents=True, exist_ok=True)
        for name, text in pages(judged).items():
            (given.pages / name).write_text(text, encoding="utf-8")
            console.print(f"wrote {given.pages / name}")
    if given.picture:
        console.print(f"wrote {write_timeline_picture(judged.selection, given.picture)}")


def cost_lines(*selections: Selection) -> Iterator[str]:
    """What the runs of each sweep took of one core, training and evaluation."""
    hours: dict[str, float] = {}
    runs: Counter[str] = Counter()
    for cell in (cell for selection in selections for cell in selection.cells):
        hours[cell.sweep] = hours.get(cell.sweep, 0.0) + core_hours(cell)
        runs[cell.sweep] += cell.num_runs
    for sweep, own in hours.items():
        yield f"{sweep}: {counted(runs[sweep], 'run')}, {own:.2f} core-hours"
    whole = sum(hours.values())
    yield f"together {whole:.1f} core-hours on the machine of the kept runs, without stages"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 on a wrong option or unfinished runs."""
    given = parser().parse_args(arguments)
    return exit_code("benchmark", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
