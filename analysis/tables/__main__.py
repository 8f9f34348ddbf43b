"""What is there, what is wrong with it, and the tables.

python -m rlhf_lab_analysis.tables SOURCE...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.sources.filter_text import parse_query
from rlhf_lab_analysis.sources.filters import Query
from rlhf_lab_analysis.tables.compact import compact
from rlhf_lab_analysis.tables.exported import runs_to_export
from rlhf_lab_analysis.tables.gather import read
from rlhf_lab_analysis.tables.open_rl_benchmark_export import link_command, write_benchmark
from rlhf_lab_analysis.tables.store import files, save
from rlhf_lab_analysis.tables.summary import show
from rlhf_lab_analysis.tables.table import make_tables, place_runs, select

KINDS = "folder, offline, orb, csv, tensorboard, saved, or wandb:ENTITY/PROJECT"


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
        "--by",
        action="append",
        default=[],
        metavar="KEY",
        help="a config key that also distinguishes conditions (repeat)",
    )
    add(
        "--filters",
        action="append",
        nargs="+",
        default=[],
        metavar="FILTER",
        help="of Open RL Benchmark: '?we=..&wpn=..' 'EXP?tag=..&seed=..'",
    )
    add("--env-ids", action="append", nargs="+", default=[], metavar="ENV")
    add("--cache", type=Path, help="folder to keep what wandb's server sent")
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


def queries_of(filters: Sequence[Sequence[str]], env_ids: Sequence[Sequence[str]]) -> list[Query]:
    """The groups of filters with their environments; one list of those is for all groups. Raises
    UserError if there are several lists, but not one a group."""
    if len(env_ids) > 1 and len(env_ids) != len(filters):
        raise UserError(
            f"--env-ids {len(env_ids)} times and --filters {len(filters)} times: pass one list for "
            "all groups, or one for each"
        )
    each = env_ids if len(env_ids) > 1 else [env_ids[0] if env_ids else ()] * len(filters)
    groups = filters or ([["?"]] if env_ids else [])
    if groups and not filters:
        each = [env_ids[0]]
    return [parse_query(group, envs) for group, envs in zip(groups, each, strict=True)]


def run(given: argparse.Namespace, console: Console) -> None:
    """Read and print the runs, and write the tables and exports that the options request."""
    if given.out:
        files(given.out)
    queries = queries_of(given.filters, given.env_ids)
    metrics = [*given.metric, *(name for query in queries for name in query.where.metrics)]
    with console.phase("reading the runs"):
        reading = read(given.sources, queries, given.cache, console.print)
        if given.compact is not None:
            reading = compact(reading, given.compact)
        tables = make_tables(reading, queries, metrics, given.by)
    show(tables, console)
    if given.out:
        with console.phase("writing the tables"):
            for path in save(tables, given.out):
                console.print(f"wrote {path}")
    if given.export:
        chosen = [one.record for one in place_runs(select(reading, queries)[0], given.by)]
        runs = runs_to_export(chosen, given.by)
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
