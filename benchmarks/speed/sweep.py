"""What a sweep adds to its runs: 24 jobs with 1 and 2 workers.

python -m benchmarks.speed.sweep [--out FOLDER] [--updates 64]

Every sweep is a real one (`rlhf-lab train -m`) on `task=arithmetic`, which has no proxy to train.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from benchmarks.speed import program
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

SWEPT = ("algo=grpo,rloo,reinforce", "run.updates_per_round=1,4", "seed=1,2,3,4")
JOBS = 24
COMMON = (
    *("task=arithmetic", "reward=task_rule", "sft.steps=60", "run.group_size=4"),
    *("run.groups_per_update=16", "eval.prompts=128", "eval.snapshots=1", "output.quiet=true"),
    *("checkpoint=rounds", "checkpoint.rounds=4"),
)
LAUNCHERS = {1: ("launcher=local",), 2: ("launcher=joblib", "hydra.launcher.n_jobs=2")}


def whole_row(out: Path, workers: int, options: Sequence[str]) -> list[str]:
    """A whole sweep from its command to its end: seconds, those of a run from start to end, and
    those of a worker per job outside the runs (starting the sweep, checking, launching)."""
    root, start = out / f"workers-{workers}", time.perf_counter()
    program.run("train", "-m", *options, *SWEPT, *LAUNCHERS[workers], f"output.root={root}")
    wall, own = time.perf_counter() - start, 0.0
    found = list_runs(root)
    assert len(found) == JOBS, f"{len(found)} runs in {root}"
    for run in found:
        begun, ended = (datetime.fromisoformat(run.manifest[key]) for key in ("started", "ended"))
        own += (ended - begun).total_seconds()
    outside = (wall * workers - own) / JOBS
    return [f"{workers}", f"{wall:.0f}", f"{own / JOBS:.1f}", f"{outside:.1f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: the stages, and both sweeps in turn."""
    parser = argparse.ArgumentParser(description="Time what a sweep adds to its runs.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-sweep"))
    parser.add_argument("--updates", type=int, default=64)
    given = parser.parse_args(arguments)
    options = [*COMMON, f"output.cache={given.out}/.cache", f"run.updates={given.updates}"]
    program.run("stages", "-m", *options, "seed=1,2,3,4")
    rows = [whole_row(given.out, workers, options) for workers in LAUNCHERS]
    columns = ["workers", "wall s", "s of a run", "outside of runs, s a job"]
    table = Table(f"a sweep of {JOBS} jobs", columns, rows)
    program.report(table, given.out / "sweep.json", Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
