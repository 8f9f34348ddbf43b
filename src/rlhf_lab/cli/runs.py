"""`rlhf-lab runs`: what was run, how it ended, and how good it was; forks follow their parents."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.manifest import error_of, fork_changes
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console, counted, seconds_text
from rlhf_lab.runs.walk import walk
from rlhf_lab.sweeps.sweep_file import RECORD, job_folders, read_record, same_path
from rlhf_lab.types.errors import UserError

# Changes that a line names; the manifest and --json have all.
SHOWN = 3
FACTS = ("command", "task", "algo", "mode", "seed")
# Columns with a metric: of the last round, and of the last evaluation.
ROUND_METRICS = {"reward": "reward/mean", "KL": "kl/sampled_reference_k1"}
EVAL_METRICS = {"gold win-rate": "gold/win_rate"}
COLUMNS = (
    *("run", "state", "started", "wall", *FACTS, "rounds", *ROUND_METRICS, *EVAL_METRICS),
    "fork of",
)
DROPPED_FIRST = ("command", "seed", "task", "KL", "mode", "algo", "started", "reward", "wall")
WITHOUT_PROBLEM = ("finished", "paused", "running")
REMEDY = "--json or a wider terminal has all"


def in_tree(runs: Sequence[RunSummary]) -> list[tuple[int, RunSummary]]:
    """The runs in their order, each followed by its forks, with the number of runs above it. A fork
    without its parent among them is at the top level."""
    parents = {id(run): parent_of(run, runs) for run in runs}
    found: list[tuple[int, RunSummary]] = []
    for run in runs:
        if parents[id(run)] is None:
            found += below(run, runs, parents, 0)
    # Damaged manifests could name each other.
    shown = {id(run) for _, run in found}
    return [*found, *((0, run) for run in runs if id(run) not in shown)]


def below(
    run: RunSummary,
    runs: Sequence[RunSummary],
    parents: dict[int, RunSummary | None],
    depth: int,
) -> Iterator[tuple[int, RunSummary]]:
    """A run and all forks of it and of those."""
    yield depth, run
    for other in runs:
        if parents[id(other)] is run:
            yield from below(other, runs, parents, depth + 1)


def parent_of(run: RunSummary, runs: Sequence[RunSummary]) -> RunSummary | None:
    """The run that one is a fork of. Parents are older, so that no run is below itself."""
    fork = fork_in(run)
    for other in runs if fork else ():
        is_parent = other.manifest.get("run_id") == fork["parent_id"] != ""
        if is_parent and other.manifest.get("started", "") <= run.manifest.get("started", ""):
            return other if other is not run else None
    return None


def fork_in(run: RunSummary) -> dict[str, Any]:
    """What a run's manifest has about its parent; empty for a run that is no fork."""
    return dict(run.manifest.get("fork") or {})


def fork_text(run: RunSummary) -> str:
    """Parent, round and changes of a fork in one line; "" for other runs."""
    fork = fork_in(run)
    if not fork:
        return ""
    changes = fork_changes(fork)
    more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    what = ", ".join(changes[:SHOWN]) + more if changes else "no change"
    return f"{Path(fork['parent']).name} at round {fork['round']}: {what}"


# Keys of --sort, and of the facts for programs that they compare.
SORTED_BY = {
    "run": "run",
    "state": "state",
    "started": "started",
    "wall": "wall_seconds",
    **{fact: fact for fact in FACTS},
    "rounds": "rounds",
    "reward": "reward/mean",
    "kl": "kl/sampled_reference_k1",
    "gold": "gold/win_rate",
}


def row(run: RunSummary, depth: int = 0) -> list[str]:
    """One line of the table; what is not known is left empty. depth: runs above it in the tree of
    forks."""
    total, seconds = run.manifest.get("num_rounds"), wall_seconds(run)
    # No spaces lead: cells of plain text lose them.
    branch = f"└{'─' * (depth - 1)} " if depth else ""
    begun = started(run) and f"{datetime.fromisoformat(started(run)).astimezone():%m-%d %H:%M}"
    return [
        f"{branch}{run.name}",
        run.state,
        begun,
        "" if seconds is None else seconds_text(seconds),
        *(str(run.manifest.get(fact, "")) for fact in FACTS),
        f"{run.rounds}/{total}" if total else str(run.rounds),
        *(metric_text(run.last, name) for name in ROUND_METRICS.values()),
        *(metric_text(run.last_eval, name) for name in EVAL_METRICS.values()),
        fork_text(run),
    ]


def metric_text(metrics: Mapping[str, Any], name: str) -> str:
    """A metric in three digits; "" where there is none."""
    value = metrics.get(name)
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def started(run: RunSummary) -> str:
    """When a run was started, in UTC; "" if that is unknown."""
    return str(run.manifest.get("started", ""))


def wall_seconds(run: RunSummary) -> float | None:
    """Seconds of training, without evaluation and what came before; None before any round."""
    seconds = run.manifest.get("wall_seconds", run.last.get("seconds/wall"))
    return float(seconds) if isinstance(seconds, int | float) else None


def facts_of(run: RunSummary) -> dict[str, Any]:
    """All facts of a run, for programs; None for what is not known. Times are in UTC."""
    manifest = run.manifest
    return {
        "run": run.name,
        "folder": str(run.folder),
        "state": run.state,
        "started": started(run) or None,
        "ended": manifest.get("ended"),
        "wall_seconds": wall_seconds(run),
        **{fact: manifest.get(fact) for fact in (*FACTS, "correction", "model")},
        "rounds": run.rounds,
        "num_rounds": manifest.get("num_rounds"),
        **{name: run.last.get(name) for name in ROUND_METRICS.values()},
        **{name: run.last_eval.get(name) for name in EVAL_METRICS.values()},
        "fork": manifest.get("fork"),
        "content": manifest.get("content"),
        "error": error_of(manifest) or None,
        "problem": run.problem or None,
    }


def log_of(run: RunSummary) -> str:
    """The file with the run's output: where it was written, or in the folder of its sweep, which
    may have been moved; "" if there is none."""
    recorded = str(run.manifest.get("log") or "")
    name = run.folder.absolute()
    moved = [above / "logs" / f"{name.relative_to(above)}.log" for above in name.parents]
    places = [Path(recorded), Path(run.manifest.get("working_folder", "")) / recorded, *moved]
    return next((str(place) for place in places if recorded and place.is_file()), recorded)


def sort_key(run: RunSummary, key: str) -> tuple[bool, Any, str]:
    """Of --sort: runs without the value first, then ascending, then by name."""
    value = facts_of(run)[SORTED_BY[key]]
    return value is not None, 0 if value is None else value, run.name


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
    sweeps = [
        folder
        for root in folders
        for folder, _ in sorted(walk(root, []))
        if (folder / RECORD).exists()
    ]
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
            states = job_states(folder, every)
            counts = sorted(Counter(states.values()).items())
            text = ", ".join(f"{number} {state}" for state, number in counts)
            console.print(f"sweep {folder}: {counted(len(states), 'job')}: {text}")
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
    states = {same_path(run.folder): run.state for run in runs}
    jobs = job_folders(folder, read_record(folder))
    return {name: states.get(job, "not started") for name, job in jobs.items()}


def as_json(
    listed: Sequence[RunSummary], sweeps: Sequence[Path], every: Sequence[RunSummary]
) -> str:
    """The runs and the sweeps, for programs. What is not known is null."""
    found: list[Mapping[str, Any]] = []
    for folder in sweeps:
        try:
            found.append({"folder": str(folder), "jobs": job_states(folder, every), "problem": ""})
        except UserError as error:
            found.append({"folder": str(folder), "jobs": {}, "problem": str(error)})
    return json.dumps({"runs": list(map(facts_of, listed)), "sweeps": found}, indent=1)


RUNS = OptionsCommand(
    "runs",
    "list the runs on disk",
    "sweeps/learning --last 10 --sort wall",
    usage="[FOLDER ...] [--last N] [--sort KEY] [--json]",
    completes="folders",
    add_options=add_options,
    action=show,
)
