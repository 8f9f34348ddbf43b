"""One run with different options, in turns: the trainer's seconds by phase.

python -m benchmarks.speed.sides --side 'KEY=VALUE ...' --side 'KEY=VALUE ...' [--repeats 3]
    [KEY=VALUE ...]

Seconds are those of the run's ledger after its last round. The first run makes the stages. Shown
with them: CPU seconds of the process and its children, with the start, and the digest of the last
weights, which shows whether both sides computed the same.
"""

from __future__ import annotations

import argparse
import functools
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.program import in_turns, run
from rlhf_lab.runs.folder import METRICS, manifest_path
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table

PHASES = ("take", "wait", "reference", "update", "probe", "sync", "track", "save", "other", "wall")
CPU, DIGEST = "CPU", "last weights"


def cpu_seconds() -> float:
    """Of all processes that this one started and that ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def train(words: Sequence[str], _: int = 0) -> dict[str, Any]:
    """Seconds by phase, CPU seconds and the digest of a run into a folder that is removed. Raises
    UserError if it fails."""
    before = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        run("train", *words, "output.quiet=true", f"output.dir={folder}/run")
        last = read_rows(Path(folder, "run", METRICS))[-1]
        digest = str(read_manifest(manifest_path(Path(folder, "run")))["weights_digest"])
    seconds = {phase: float(last[f"seconds/{phase}"]) for phase in PHASES}
    return {**seconds, CPU: cpu_seconds() - before, DIGEST: digest}


def table_of(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """A row for each phase, a column for each side; ratios are to the first side's run of the same
    repeat."""
    base = next(iter(found.values()))
    rows = [
        [name, *(Spread.of([run[name] for run in runs]).text(".3f") for runs in found.values())]
        for name in (*PHASES, CPU)
    ]
    ratios = [
        [run[CPU] / other[CPU] for run, other in zip(runs, base, strict=True)]
        for runs in found.values()
    ]
    rows.append(["CPU, ratio", *(Spread.of(own).text(".3f") for own in ratios)])
    digests = ({run[DIGEST][:8] for run in runs} for runs in found.values())
    rows.append([DIGEST, *(", ".join(sorted(own)) for own in digests)])
    return Table("seconds, median [least, most] of the repeats", ["", *found], rows)


def measure(given: argparse.Namespace, console: Console) -> None:
    if len(given.side) < 2 or given.repeats < 1:
        raise UserError("pass --side twice or more, and --repeats 1 or more")
    sides = {side: functools.partial(train, [*given.options, *side.split()]) for side in given.side}
    next(iter(sides.values()))()
    table = table_of(in_turns(sides, given.repeats))
    console.table(table.title, table.columns, table.rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if a run fails."""
    parser = argparse.ArgumentParser(description="Time a run with different options, in turns.")
    parser.add_argument("--side", action="append", default=[], help="options of a side")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("options", nargs="*", help="options of every side")
    given = parser.parse_intermixed_args(arguments)
    return exit_code("sides", lambda: measure(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
