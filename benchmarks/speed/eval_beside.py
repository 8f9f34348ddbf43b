"""What the trainer spends on each phase with a process that judges versions beside it, and without.

python -m benchmarks.speed.eval_beside [--pairs 3] [KEY=VALUE ...]

A pair is the same run without eval.every and with eval.every=1, one after the other. Seconds are
those of the run's own ledger after its last round; the process has none in it. Work of the process
on cores that the trainer wants shows as longer phases, waiting as `wait`, `save` or `other`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.speed.clock import Spread
from benchmarks.speed.program import command
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

RUN = ("algo=online_dpo", "model=nano_s", "run.updates=12", "run.updates_per_round=1")
PHASES = ("take", "wait", "reference", "update", "probe", "sync", "track", "save", "other", "wall")
EVERY = (0, 1)


def seconds_of(options: Sequence[str], every: int, folder: Path) -> Mapping[str, float]:
    """The seconds of each phase of a run. Raises UserError if it fails."""
    words = [*RUN, "eval.snapshots=1", f"eval.every={every}", *options]
    done = subprocess.run(command("train", *words, "output.quiet=true", f"output.dir={folder}"))
    if done.returncode:
        raise UserError(f"the run ended with code {done.returncode}: correct its options")
    last = read_rows(folder / METRICS)[-1]
    return {phase: float(last[f"seconds/{phase}"]) for phase in PHASES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="Time a trainer beside an evaluation.")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument("options", nargs="*", help=f"overrides, after {' '.join(RUN)}")
    given = parser.parse_args(arguments)
    if given.pairs < 1:
        raise UserError(f"--pairs {given.pairs}: choose 1 or more")
    found: dict[int, list[Mapping[str, float]]] = {every: [] for every in EVERY}
    for _ in range(given.pairs):
        for every, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                runs.append(seconds_of(given.options, every, Path(folder, "run")))
    rows = [
        [phase, *(Spread.of([one[phase] for one in runs]).text(".3f") for runs in found.values())]
        for phase in PHASES
    ]
    columns = ["seconds", *(f"eval.every={every}" for every in EVERY)]
    Console(quiet=False).table("median [least, most] of the trainer's seconds", columns, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
