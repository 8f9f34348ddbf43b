"""Sync against async at three ratios of generation to training, with the planner's ideal.

python -m benchmarks.speed.sync_async [--out FOLDER] [--repeats 2] [--rounds 30]

Every run is a real one (`rlhf-lab train`), with a core for generation and one for training. For
each ratio, sync, async and sync on both cores take turns. Printed per ratio: generation over
training seconds of a sync round; async's speed-up over sync; the ideal speed-up by the planner's
ideal timeline, from the seconds that sync took (so that what the cores take from each other counts
against async) and from async's own; and what sync gains from the second core.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed import program
from benchmarks.speed.other_load import busy_note
from rlhf_lab.experiment.planning import ideal_timeline
from rlhf_lab.experiment.planning.planner import predict, work_of
from rlhf_lab.experiment.planning.timing import Measurement, measured
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

COMMON = (
    *("sft.steps=60", "labels.pairs=256", "labels.held_out_pairs=64"),
    *("generator.chunk_groups=32", "eval=none", "output.quiet=true"),
)
RATIOS = {
    "0.5": ("run.group_size=4", "run.passes=2"),
    "1": ("run.group_size=2", "model@proxy=nano_m"),
    "2": ("run.group_size=8", "model@proxy=nano_m"),
}
SETTINGS = {
    "sync": ("mode=sync",),
    "async": ("mode=async",),
    "sync on both cores": ("mode=sync", "engine.threads=2", "generator.threads=2"),
}


def train(folder: Path, options: Sequence[str]) -> Measurement:
    """One run in a process of its own, measured."""
    program.run("train", *options, f"output.dir={folder}")
    return measured(folder)


def numbers(sync: Measurement, background: Measurement, both: Measurement) -> dict[str, float]:
    """What the three runs of one repeat tell, by column. The ideal from sync's seconds is the
    speed-up of a timeline in which nothing takes longer than it did in sync."""
    work, own = work_of(sync, sync.settings), background.settings
    beside = ideal_timeline.ideal(work, own.max_staleness, own.num_generators).wall
    speed_up = sync.wall / background.wall
    of_sync = ideal_timeline.ideal(work, 0, 0).wall / beside
    of_own = sync.wall / predict(background, own).wall
    return {
        "generation / training": work.generating / sum(work.train),
        "sync s": sync.wall,
        "async s": background.wall,
        "speed-up": speed_up,
        "ideal (sync's seconds)": of_sync,
        "reached": speed_up / of_sync,
        "ideal (its own)": of_own,
        "reached ": speed_up / of_own,
        "sync both cores s": both.wall,
        "async against it": both.wall / background.wall,
    }


def row(ratio: str, out: Path, repeats: int, rounds: int) -> dict[str, str]:
    """All runs of a ratio: means over the repeats, with the smallest and the largest."""
    options = [*COMMON, *RATIOS[ratio], f"output.cache={out}/.cache"]
    options.append(f"run.updates={rounds * (2 if 'run.passes=2' in options else 1)}")

    def one(name: str, repeat: int) -> Measurement:
        return train(out / f"ratio-{ratio}" / f"{name} {repeat}", [*options, *SETTINGS[name]])

    runs = program.in_turns({name: functools.partial(one, name) for name in SETTINGS}, repeats)
    trials = [numbers(*three) for three in zip(*runs.values(), strict=True)]
    texts = {"aimed ratio": ratio}
    for name in trials[0]:
        values = [trial[name] for trial in trials]
        texts[name] = f"{statistics.fmean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: run everything, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description="Sync against async, side by side.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-async"))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ratios", nargs="+", choices=list(RATIOS), default=list(RATIOS))
    given = parser.parse_args(arguments)
    title = f"async against sync, means [smallest, largest] {busy_note()}".rstrip()
    rows = [row(ratio, given.out, given.repeats, given.rounds) for ratio in given.ratios]
    table = Table(title, list(rows[0]), [list(texts.values()) for texts in rows])
    program.report(table, given.out / "bench_async.json", Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
