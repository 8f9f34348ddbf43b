"""The tracked benchmark.

python -m rlhf_lab_analysis.benchmark [RUNS...] [--docs docs/benchmark.md] [--picture FILE.png]

With RUNS, their tables replace the stored ones. With --docs, the page is written; with --picture,
sync beside async in one time scale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.benchmark.kept import TABLES, load_benchmark, save_benchmark
from rlhf_lab_analysis.benchmark.page import page
from rlhf_lab_analysis.benchmark.timeline_picture import write_timeline_picture
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.questions.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import decide_all
from rlhf_lab_analysis.comparison.registry.definitions import read_registries
from rlhf_lab_analysis.comparison.registry.gates import gated, stages_of
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.markdown import split_at_markers


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    found = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.benchmark", description=__doc__
    )
    found.add_argument("runs", nargs="*", metavar="RUNS", help="whose tables are to be kept")
    found.add_argument("--tables", type=Path, default=TABLES, help="where they are kept")
    found.add_argument("--docs", type=Path, help="the page to write")
    found.add_argument("--picture", type=Path, help="the timeline of sync and async to write")
    return found


def run(given: argparse.Namespace, console: Console) -> None:
    """Store the given runs, answer all questions, and write the page."""
    if given.docs:
        split_at_markers(given.docs)
    if given.runs:
        save_benchmark(given.runs, given.tables)
    tables, criteria = load_benchmark(given.tables), Criteria()
    selection = cells(tables)
    registries = read_registries()
    found = [
        decide_all(
            one,
            cells(gated(one, tables)[0]),
            criteria,
        )
        for one in registries
    ]
    stages = [stage for one in registries for stage in stages_of(one, tables)]
    for one in (one for decisions in found for one in decisions.decided):
        made = one.answer
        console.print(f"{made.verdict}: {made.claim} ({made.setting}) {made.evidence}")
    if given.docs:
        before, after = split_at_markers(given.docs)
        lines = page(tables, selection, found, stages, criteria)
        given.docs.write_text("\n".join([before, *lines, after.lstrip("\n")]), encoding="utf-8")
        console.print(f"wrote {given.docs}")
    if given.picture:
        console.print(f"wrote {write_timeline_picture(selection, given.picture)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 on a wrong option or unfinished runs."""
    given = parser().parse_args(arguments)
    return exit_code("benchmark", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
