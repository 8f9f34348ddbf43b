"""The seconds that `rlhf-lab plan` predicts against those of real runs.

python -m benchmarks.speed.plan [--out FOLDER] [--rounds 20]

One async run is measured; from it alone the wall-clock of the other settings is predicted, and then
each of them is run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.program import report
from benchmarks.speed.sync_async import COMMON, train
from rlhf_lab.experiment.planning.changes import changed
from rlhf_lab.experiment.planning.planner import predict
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

# A round of twice the updates, or a pass more, is a longer run, not one of fewer rounds.
LONGER = ("run.passes=2", "run.updates_per_round=2")
OTHERS = (
    *("run.group_size=4", "run.group_size=8", *LONGER, "run.groups_per_update=32"),
    *("generator.chunk_groups=16", "mode.max_staleness=3", "mode=sync"),
)
COLUMNS = ["settings", "predicted s", "took s", "error", "waits predicted", "waits took"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: measure, predict, run, compare."""
    parser = argparse.ArgumentParser(description="Predicted seconds against real ones.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-plan"))
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(arguments)
    options = [*COMMON, f"output.cache={given.out}/.cache", "run.group_size=2"]
    options.append(f"run.updates={given.rounds}")
    base = train(given.out / "base", [*options, "mode=async"])
    rows, errors = [], []
    for number, other in enumerate(OTHERS):
        change = dict([other.split("=")])
        if other in LONGER:
            change["run.updates"] = str(2 * given.rounds)
        found = predict(base, changed(base.settings, change))
        own = [f"{key}={value}" for key, value in ({"mode": "async"} | change).items()]
        real = train(given.out / f"{number}", [*options, *own])
        errors.append(found.wall / real.wall - 1)
        waits = (found.trainer_wait, real.trainer_wait / real.wall)
        seconds = (f"{found.wall:.1f}", f"{real.wall:.1f}", f"{errors[-1]:+.1%}")
        rows.append([other, *seconds, *(f"{share:.0%}" for share in waits)])
    title = (
        "predicted from one async run, against real runs: mean absolute error "
        f"{statistics.fmean(map(abs, errors)):.1%}, largest {max(map(abs, errors)):.1%}"
    )
    report(Table(title, COLUMNS, rows), given.out / "bench_plan.json", Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
