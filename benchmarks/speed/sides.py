"""One run with different options, in turns: the trainer's seconds by phase.

python -m benchmarks.speed.sides --side 'KEY=VALUE ...' --side 'KEY=VALUE ...' [--repeats 3]
    [KEY=VALUE ...]

Seconds are those of the run's own ledger after its last round. The first run makes the stages.
Shown with them: CPU seconds of the process and its children, with the start, and the digest of the
last weights, which tells whether both sides computed the same.
"""

from __future__ import annotations

import argparse
import functools
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Trained:
    """seconds: by phase. cpu: seconds of the processor."""

    seconds: Mapping[str, float]
    cpu: float
    digest: str


def train(words: Sequence[str], _: int = 0) -> Trained:
    """A run into a folder that is removed. Raises UserError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        run("train", *words, "output.quiet=true", f"output.dir={folder}/run")
        last = read_rows(Path(folder, "run", METRICS))[-1]
        digest = str(read_manifest(manifest_path(Path(folder, "run")))["weights_digest"])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Trained({phase: float(last[f"seconds/{phase}"]) for phase in PHASES}, cpu, digest)


def table_of(found: Mapping[str, Sequence[Trained]]) -> Table:
    """A row for each phase, a column for each side; ratios are to the first side's run of the same
    repeat."""
    base = next(iter(found.values()))
    columns = [texts_of(runs, base) for runs in found.values()]
    heads = [*PHASES, "CPU", "CPU, ratio", "last weights"]
    rows = [list(row) for row in zip(heads, *columns, strict=True)]
    return Table("seconds, median [least, most] of the repeats", ["", *found], rows)


def texts_of(runs: Sequence[Trained], base: Sequence[Trained]) -> list[str]:
    """A side's cell of each row."""
    ratios = [run.cpu / other.cpu for run, other in zip(runs, base, strict=True)]
    return [
        *(Spread.of([run.seconds[phase] for run in runs]).text(".3f") for phase in PHASES),
        Spread.of([run.cpu for run in runs]).text(".2f"),
        Spread.of(ratios).text(".3f"),
        ", ".join(sorted({run.digest[:8] for run in runs})),
    ]


def measure(given: argparse.Namespace, console: Console) -> None:
    if len(given.side) < 2 or given.repeats < 1:
        raise UserError("pass --side twice or more, and --repeats 1 or more")
    sides = {side: functools.partial(train, [*given.options, *side.split()]) for side in given.side}
    train([*given.options, *given.side[0].split()])
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
