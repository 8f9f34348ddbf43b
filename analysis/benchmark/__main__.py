"""The tracked benchmark.

python -m rlhf_lab_analysis.benchmark [RUNS...] [--docs docs/benchmark.md] [--picture FILE.png]

With RUNS, their tables replace the stored ones. With --docs, the page is written; with --picture,
sync beside async in one time scale.
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
    weak_of,
)
from rlhf_lab_analysis.benchmark.page import conditions_of, page
from rlhf_lab_analysis.benchmark.timeline_picture import write_timeline_picture
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import core_hours, decide_all
from rlhf_lab_analysis.comparison.registry.definitions import read_registries
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.markdown import split_at_markers


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.benchmark", description=__doc__
    )
    found.add_argument("runs", nargs="*", metavar="RUNS", help="whose tables are to be kept")
    found.add_argument("--cost", action="store_true", help="print what the kept runs took")
    found.add_argument("--tables", type=Path, default=TABLES, help="where they are kept")
    found.add_argument("--docs", type=Path, help="the page to write")
    found.add_argument("--picture", type=Path, help="the timeline of sync and async to write")
    return found


def run(given: argparse.Namespace, console: Console) -> None:
    """Store the given runs, decide all claims, and write what is asked for."""
    if given.docs:
        split_at_markers(given.docs)
    if given.runs:
        save_benchmark(given.runs, given.tables)
    places = [given.tables, given.tables.with_name(COLLAPSES.name)]
    tables, collapses = load_benchmark(places[0]), load_beside(places[1])
    selection, fallen = cells(tables), conditions_of(collapses)
    if given.cost:
        for line in cost_lines((*selection.cells, *fallen.cells)):
            console.print(line)
        return
    together = Selection(selection.cells + fallen.cells, ())
    registries = [one for one in read_registries() if not one.is_general]
    found = [decide_all(one, together, Criteria()) for one in registries]
    for made in (one.answer for decisions in found for one in decisions.decided):
        console.print(f"{made.evidence} {made.verdict}: {made.claim} ({made.setting})")
    if given.docs:
        weak = [load_beside(weak_of(place)) for place in places]
        write_page(given.docs, page(tables, collapses, weak, found))
        console.print(f"wrote {given.docs}")
    if given.picture:
        console.print(f"wrote {write_timeline_picture(selection, given.picture)}")


def write_page(path: Path, lines: Sequence[str]) -> None:
    """Write the lines between the markers of a page."""
    before, after = split_at_markers(path)
    path.write_text("\n".join([before, *lines, after.lstrip("\n")]), encoding="utf-8")


def cost_lines(every: Sequence[Cell]) -> Iterator[str]:
    """What the runs of each sweep took of one core, training and evaluation."""
    hours: dict[str, float] = {}
    runs: Counter[str] = Counter()
    for cell in every:
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
