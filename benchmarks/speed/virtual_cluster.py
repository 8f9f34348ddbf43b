"""How well the virtual clock predicts real asynchronous runs on this machine.

python -m benchmarks.speed.virtual_cluster [--out FOLDER] [--rounds 20]

Real runs of mode=free at three ratios of generation to training, and the virtual cluster that is
fitted to each: virtual seconds against real ones, and total variation of the lags.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed import program
from benchmarks.speed.other_load import busy_note
from rlhf_lab.experiment.planning.cluster_fit import distance, fitted
from rlhf_lab.experiment.planning.planner import work_of
from rlhf_lab.experiment.planning.timing import measured
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

COMMON = (
    *("stages=nano", "reward=task_rule", "algo=grpo", "run.group_size=4", "mode=free"),
    *("mode.max_staleness=2", "eval=none", "eval.snapshots=0", "output.quiet=true", "sft.steps=20"),
)
# Passes over a round's samples, groups written for each that is trained on, and groups of a chunk,
# of which few are slow to write, for generation over training of about 0.5, 1 and 2.
RATIOS = {"0.5": (3, 1, 4), "1": (1, 2, 4), "2": (1, 2, 1)}
COLUMNS = ["aimed ratio", "measured", "real s", "virtual s", "error", "total variation of lags"]


def prediction(out: Path, ratio: str, rounds: int) -> list[str]:
    """A real run of one ratio, and the errors of the virtual cluster that is fitted to it."""
    (passes, written, chunk_groups), folder = RATIOS[ratio], out / f"free {ratio}"
    program.run(
        *("train", *COMMON, f"generator.chunk_groups={chunk_groups}"),
        *(f"run.groups_per_update={32 // written}", f"run.oversample={written}"),
        *(f"run.passes={passes}", f"run.updates={rounds * passes}"),
        *(f"output.cache={out}/.cache", f"output.dir={folder}"),
    )
    fit, run = fitted(folder), measured(folder)
    lags, wall = fit.predicted()
    training = run.wall - run.trainer_wait
    return [
        ratio,
        f"{work_of(run, run.settings).generating / training:.2f}",
        f"{fit.wall:.1f}",
        f"{wall:.1f}",
        f"{100 * (wall / fit.wall - 1):+.1f}%",
        f"{distance(fit.lags, lags):.3f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: run everything, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description="Predictions of the virtual clock.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-virtual"))
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(arguments)
    title = f"real runs of mode=free, predicted by fitted virtual clusters {busy_note()}".rstrip()
    rows = [prediction(given.out, ratio, given.rounds) for ratio in RATIOS]
    path = given.out / "virtual_prediction.json"
    program.report(Table(title, COLUMNS, rows), path, Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
