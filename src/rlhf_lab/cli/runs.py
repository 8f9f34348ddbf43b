"""`rlhf-lab runs`: what was run, how it ended, and how good it was."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.cli.run_facts import (
    COLUMNS,
    DROPPED_FIRST,
    SORTED_BY,
    facts_of,
    log_of,
    row,
    sort_key,
    started,
)
from rlhf_lab.cli.run_tree import fork_in, in_tree
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.sweeps.sweep_file import RECORD, job_folders, read_record, same_path
from rlhf_lab.types.errors import UserError

WITHOUT_PROBLEM = ("finished", "paused", "running")
REMEDY = "--json or a wider terminal has all"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "where the runs are (runs)"
    add("folders", nargs="*", type=Path, default=[Path("runs")], metavar="FOLDER", help=text)
    add("--last", type=positive, metavar="N", help="only the N runs that were started last")
    add(
        "--sort",
        choices=SORTED_BY,
        default="run",
        metavar="KEY",
        help=f"{', '.join(SORTED_BY)} (run)",
    )
    add("--json", action="store_true", help="print all facts as JSON, for programs")


def positive(text: str) -> int:
    """A number of runs."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is no number of runs: pass 1 or more")
    return int(text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print every run below the folders, and what is wrong with the damaged ones. Returns 0."""
    folders: list[Path] = options.folders
    every = [run for root in folders for run in runs_in(root, is_only=len(folders) == 1)]
    newest = sorted(every, key=started)[-options.last :] if options.last else every
    listed = sorted(newest, key=lambda run: sort_key(run, options.sort))
    sweeps = [path.parent for root in folders for path in sorted(root.rglob(RECORD))]
    if options.json:
        sys.stdout.write(as_json(listed, sweeps, every) + "\n")
        return 0
    named = " ".join(map(str, folders))
    if not every:
        console.print(f"no runs in {named}: `rlhf-lab train` makes one")
        return 0
    tree = in_tree(listed)
    rows = [row(run, depth) for depth, run in tree]
    columns = COLUMNS if any(map(fork_in, listed)) else COLUMNS[:-1]
    rows = [one[: len(columns)] for one in rows]
    console.table(f"runs in {named}", columns, rows, DROPPED_FIRST, REMEDY)
    for run in listed:
        if run.problem:
            console.print(f"{run.name}: {run.problem}")
        if run.state not in WITHOUT_PROBLEM:
            console.print(f"{run.name}: {ending(run)}")
    for folder in sweeps:
        try:
            console.print(sweep_line(folder, every))
        except UserError as error:
            console.print(f"sweep {folder}: {error}")
    return 0


def runs_in(root: Path, is_only: bool) -> list[RunSummary]:
    """The runs below a folder. Of several folders, the names of runs begin with theirs."""
    if not root.is_dir():
        raise UserError(
            f"{root} is not a folder: rlhf-lab runs FOLDER lists the runs below FOLDER "
            "(without it: below runs/)"
        )
    return list_runs(root, "" if is_only else str(root))


def ending(run: RunSummary) -> str:
    """How a run ended that did not finish, and where its output is."""
    error = error_of(run.manifest)
    text = f"{run.state}{f': {error}' if error else ''}"
    number = run.manifest.get("process", {}).get("job")
    return text + "".join(
        f"; {name} {value}"
        for name, value in (("log", log_of(run)), ("Slurm job", number))
        if value
    )


def job_states(folder: Path, runs: Sequence[RunSummary]) -> dict[str, str]:
    """The state of each job of a sweep."""
    states = {same_path(run.folder): run.state for run in runs}
    jobs = job_folders(folder, read_record(folder))
    return {name: states.get(job, "not started") for name, job in jobs.items()}


def sweep_line(folder: Path, runs: Sequence[RunSummary]) -> str:
    """How far a sweep has come."""
    states = job_states(folder, runs)
    counts = Counter(states.values())
    text = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    return f"sweep {folder}: {counted(len(states), 'job')}: {text}"


def as_json(
    listed: Sequence[RunSummary], sweeps: Sequence[Path], every: Sequence[RunSummary]
) -> str:
    """The runs and the sweeps, for programs. What is not known is null."""
    found = [sweep_facts(folder, every) for folder in sweeps]
    return json.dumps({"runs": list(map(facts_of, listed)), "sweeps": found}, indent=1)


def sweep_facts(folder: Path, runs: Sequence[RunSummary]) -> Mapping[str, Any]:
    try:
        return {"folder": str(folder), "jobs": job_states(folder, runs), "problem": ""}
    except UserError as error:
        return {"folder": str(folder), "jobs": {}, "problem": str(error)}


COMMAND = OptionsCommand(
    "runs",
    "list the runs on disk",
    "sweeps/learning --last 10 --sort wall",
    usage="[FOLDER ...] [--last N] [--sort KEY] [--json]",
    add_options=add_options,
    action=show,
)
