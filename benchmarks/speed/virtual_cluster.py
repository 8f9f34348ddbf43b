"""What the virtual clock costs, and how well it predicts real asynchronous runs on this machine.

python -m benchmarks.speed.virtual_cluster [--out FOLDER] [--repeats 3] [--rounds 20]

Overhead: mode=virtual with room for every chunk computes the same samples and updates as
mode=lagged, which the digests of their last weights prove; the two take turns. Predictions: real
runs of mode=free at three ratios of generation to training, and the virtual cluster that is fitted
to each; virtual seconds against real ones, and total variation of the lags.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed import program
from benchmarks.speed.other_load import busy_cores, note
from rlhf_lab.cli.train import COMMAND
from rlhf_lab.experiment.planning.cluster_fit import distance, fitted
from rlhf_lab.experiment.planning.planner import work_of
from rlhf_lab.experiment.planning.timing import measured
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

COMMON = (
    *("stages=nano", "reward=task_rule", "algo=grpo", "run.group_size=4"),
    *("eval=none", "eval.snapshots=0", "output.quiet=true", "sft.steps=20"),
)
# Every chunk begins with the version that admits it, and is over before the next one.
ROOMY = (
    *(
        "mode=virtual",
        "cluster.order=submission",
        "cluster.row_scale=1",
        "cluster.sequences=100000",
    ),
    *("cluster.step_seconds=1e-6", "cluster.step_seconds_per_sequence=0", "cluster.length_scale=1"),
    *("cluster.round_seconds=1", "cluster.prefill_tokens_per_second=1e12"),
)
SIDES = {"lagged": ("mode=lagged",), "virtual": ROOMY}
# Passes over a round's samples, groups written for each that is trained on, and groups of a chunk,
# of which few are slow to write, for generation over training of about 0.5, 1 and 2.
RATIOS = {"0.5": (3, 1, 4), "1": (1, 2, 4), "2": (1, 2, 1)}


def seconds(folder: Path, options: Sequence[str]) -> tuple[float, str]:
    """Seconds of the processor that one run took in this process, which other work on the machine
    hardly changes, and the digest of its last weights."""
    start = time.process_time()
    COMMAND.run([*COMMON, *options, f"output.dir={folder}"])
    digest = read_manifest(manifest_path(folder))["weights_digest"]
    return time.process_time() - start, digest


def overhead(out: Path, repeats: int, rounds: int) -> list[list[str]]:
    """A row per repeat: seconds of both sides, and their ratio. Raises RuntimeError if they have
    not computed the same."""
    shared = (f"output.cache={out}/.cache", f"run.updates={rounds}", "generator.chunk_groups=1")
    # The stages, and what is imported once.
    seconds(out / "first", [*shared, "run.groups_per_update=16", *SIDES["virtual"]])
    rows, ratios = [], []
    for repeat in range(repeats):
        found = {
            side: seconds(out / f"{side} {repeat}", [*shared, "run.groups_per_update=16", *options])
            for side, options in SIDES.items()
        }
        (lagged, one), (virtual, other) = found["lagged"], found["virtual"]
        if one != other:
            raise RuntimeError(f"repeat {repeat}: the virtual run has other last weights: {other}")
        ratios.append(virtual / lagged)
        rows.append([str(repeat), f"{lagged:.2f}", f"{virtual:.2f}", f"{virtual / lagged:.3f}"])
    return [*rows, ["median", "", "", f"{statistics.median(ratios):.3f}"]]


def prediction(out: Path, ratio: str, rounds: int) -> list[str]:
    """A real run of one ratio, and the errors of the virtual cluster that is fitted to it."""
    (passes, written, chunk_groups), folder = RATIOS[ratio], out / f"free {ratio}"
    program.run(
        *("train", *COMMON, "mode=free", "mode.max_staleness=2"),
        f"generator.chunk_groups={chunk_groups}",
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
    """Command line: run everything, print the tables, keep them as JSON."""
    parser = argparse.ArgumentParser(description="The virtual clock's cost and its predictions.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-virtual"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    busy = note(busy_cores(), usable_cores())
    given.out.mkdir(parents=True, exist_ok=True)
    columns = ["repeat", "lagged, CPU s", "virtual, CPU s (real)", "ratio"]
    rows = overhead(given.out, given.repeats, given.rounds)
    title = f"cost of the virtual clock {busy}".rstrip()
    program.report(Table(title, columns, rows), given.out / "virtual_overhead.json", console)
    columns = ["aimed ratio", "measured", "real s", "virtual s", "error", "total variation of lags"]
    rows = [prediction(given.out, ratio, given.rounds) for ratio in RATIOS]
    title = f"real runs of mode=free, predicted by fitted virtual clusters {busy}".rstrip()
    program.report(Table(title, columns, rows), given.out / "virtual_prediction.json", console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
