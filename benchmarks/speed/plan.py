"""Compare the seconds that `rlhf-lab plan` predicts with those of real runs.

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

OTHERS = (
    "run.group_size=4",
    "run.group_size=8",
    "run.passes=2",
    "run.updates_per_round=2",
    "run.groups_per_update=32",
    "generator.chunk_groups=16",
    "mode.max_staleness=3",
    "mode=sync",
)
COLUMNS = ["settings", "predicted s", "took s", "error", "waits predicted", "waits took"]


def row(label: str, predicted: tuple[float, float], took: tuple[float, float]) -> list[str]:
    """Wall-clock, and the share of it that the trainer waits."""
    return [
        label,
        f"{predicted[0]:.1f}",
        f"{took[0]:.1f}",
        f"{predicted[0] / took[0] - 1:+.1%}",
        f"{predicted[1]:.0%}",
        f"{took[1]:.0%}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: measure, predict, run, compare."""
    parser = argparse.ArgumentParser(description="Predicted seconds against real ones.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-plan"))
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    options = [*COMMON, f"output.cache={given.out}/.cache", "run.group_size=2"]
    options.append(f"run.updates={given.rounds}")
    base = train(given.out / "base", [*options, "mode=async"])
    rows, errors = [], []
    for number, other in enumerate(OTHERS):
        change = dict([other.split("=")])
        # A round of twice the updates, or a pass more, is a longer run, not one of fewer rounds.
        if other.startswith(("run.passes", "run.updates_per_round")):
            change["run.updates"] = str(2 * given.rounds)
        found = predict(base, changed(base.settings, change))
        mode = [] if "mode" in change else ["mode=async"]
        own = [f"{key}={value}" for key, value in change.items()]
        real = train(given.out / f"{number}", [*options, *mode, *own])
        errors.append(abs(found.wall / real.wall - 1))
        took = (real.wall, real.trainer_wait / real.wall)
        rows.append(row(other, (found.wall, found.trainer_wait), took))
        console.print(f"{other}: predicted {found.wall:.1f} s, took {real.wall:.1f} s")
    title = "predicted from one async run, against real runs"
    report(Table(title, COLUMNS, rows), given.out / "bench_plan.json", console)
    console.print(f"mean absolute error {statistics.fmean(errors):.1%}, largest {max(errors):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
