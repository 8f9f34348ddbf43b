"""`rlhf-lab runs`: what was run, how it ended, and how good it was."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.sweeps.sweep_file import RECORD, job_folders, read_record
from rlhf_lab.types.errors import UserError

FACTS = ("command", "task", "algo", "mode", "seed")
WITHOUT_PROBLEM = ("finished", "paused", "running")
COLUMNS = ("run", "state", *FACTS, "rounds", "reward", "KL", "gold win-rate")


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "where the runs are (runs)"
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), help=text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print every run below the folder, and what is wrong with the damaged ones. Returns 0."""
    root: Path = options.folder
    if not root.is_dir():
        raise UserError(
            f"{root} is not a folder: rlhf-lab runs FOLDER lists the runs below FOLDER "
            "(without it: below runs/)"
        )
    listed = list_runs(root)
    if not listed:
        console.print(f"no runs in {root}: `rlhf-lab train` makes one")
        return 0
    console.table(f"runs in {root}", COLUMNS, [row(run) for run in listed])
    for run in listed:
        if run.problem:
            console.print(f"{run.name}: {run.problem}")
        if run.state not in WITHOUT_PROBLEM:
            console.print(f"{run.name}: {ending(run)}")
    for path in sorted(root.rglob(RECORD)):
        try:
            console.print(sweep_line(path.parent, listed))
        except UserError as error:
            console.print(f"sweep {path.parent}: {error}")
    return 0


def ending(run: RunSummary) -> str:
    """How a run ended that did not finish, and where its output is."""
    error = error_of(run.manifest)
    text = f"{run.state}{f': {error}' if error else ''}"
    number = run.manifest.get("process", {}).get("job")
    return text + "".join(
        f"; {name} {value}"
        for name, value in (("log", run.manifest.get("log")), ("Slurm job", number))
        if value
    )


def sweep_line(folder: Path, runs: Sequence[RunSummary]) -> str:
    """How far a sweep has come."""
    jobs = job_folders(folder, read_record(folder)).values()
    states = {Path(os.path.normpath(run.folder.absolute())): run.state for run in runs}
    counts = Counter(states.get(job, "not started") for job in jobs)
    text = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    return f"sweep {folder}: {counted(len(jobs), 'job')}: {text}"


def row(run: RunSummary) -> list[str]:
    """One line of the table; what is not known is left empty."""
    total = run.manifest.get("num_rounds")
    return [
        run.name,
        run.state,
        *(str(run.manifest.get(fact, "")) for fact in FACTS),
        f"{run.rounds}/{total}" if total else str(run.rounds),
        number(run.last, "reward/mean"),
        number(run.last, "kl/sampled_reference_k1"),
        number(run.last_eval, "gold/win_rate"),
    ]


def number(metrics: Mapping[str, Any], name: str) -> str:
    """A metric in three digits; "" where there is none."""
    value = metrics.get(name)
    return f"{value:.3f}" if isinstance(value, int | float) else ""


COMMAND = OptionsCommand(
    "runs",
    "list the runs on disk",
    "sweeps/learning",
    usage="[FOLDER]",
    add_options=add_options,
    action=show,
)
