"""What is there, what is wrong with it, and the tables.

python -m rlhf_lab_analysis.tables SOURCE...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.sources.filters import parse_filters
from rlhf_lab_analysis.tables.compact import compact
from rlhf_lab_analysis.tables.exported import runs_to_export
from rlhf_lab_analysis.tables.open_rl_benchmark_export import link_command, write_benchmark
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.store import files, save
from rlhf_lab_analysis.tables.summary import show
from rlhf_lab_analysis.tables.table import make_tables, place_runs, select

KINDS = "folder, orb, csv, tensorboard, offline, saved, or wandb:ENTITY/PROJECT"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m rlhf_lab_analysis.tables", description="Tracked runs as one tidy table."
    )
    add_options(found)
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help=f"a folder or file, or KIND:PLACE ({KINDS})")
    add("--metric", action="append", default=[], help="keep this metric (repeat)")
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this value of the config, or tag=NAME (repeat; of one key any)",
    )
    add("--out", type=Path, help="write the tables: FILE.parquet or FILE.csv")
    add(
        "--compact",
        type=int,
        metavar="POINTS",
        help="keep so many points a run, and nothing of where it was written",
    )
    add(
        "--export",
        type=Path,
        metavar="FOLDER",
        help="write the runs for `openrlbenchmark.rlops --offline`",
    )
    add("--entity", default="local", help="of the export")
    add("--project", default="rlhf_lab", help="of the export")


def run(given: argparse.Namespace, console: Console) -> None:
    """Read and print the runs, and write the tables and exports that the options request."""
    if given.out:
        files(given.out)
    filters = parse_filters(given.where)
    with console.phase("reading the runs"):
        reading = read_sources(given.sources, filters)
        if given.compact is not None:
            reading = compact(reading, given.compact)
        tables = make_tables(reading, filters, given.metric)
    show(tables, console)
    if given.out:
        with console.phase("writing the tables"):
            for path in save(tables, given.out):
                console.print(f"wrote {path}")
    if given.export:
        chosen = [one.record for one in place_runs(select(reading, filters)[0])]
        runs = runs_to_export(chosen)
        with console.phase("writing the runs"):
            written = write_benchmark(runs, given.export, given.entity, given.project)
        console.print(f"wrote {len(written)} runs to {given.export}/{given.entity}/{given.project}")
        if twice := len(chosen) - len(runs):
            console.print(f"left out {twice} that have the settings and the seed of another one")
        console.print(f"where rlops finds them: {link_command(given.export, given.entity)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be shown."""
    given = parser().parse_args(arguments)
    return exit_code("tables", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
