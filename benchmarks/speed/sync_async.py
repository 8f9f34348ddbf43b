"""Compare sync and async on this machine at three ratios of generation to training.

python -m benchmarks.speed.sync_async [--out FOLDER] [--repeats 2] [--rounds 30]

Every run is a real one (`rlhf-lab train`), with a core for generation and one for training. For
each ratio, sync, async and sync on both cores take turns. Printed per ratio: generation over
training seconds of a sync round; async's speed-up over sync; the ideal speed-up by
the planner's ideal timeline, from the seconds that sync took (so that what the cores take from each
other counts against async) and from async's own; and what sync gains from the second core.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed import program
from benchmarks.speed.other_load import busy_cores, note
from rlhf_lab.experiment.planning import ideal_timeline
from rlhf_lab.experiment.planning.planner import predict, work_of
from rlhf_lab.experiment.planning.timing import Measurement, measured
from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

COMMON = (
    "sft.steps=60",
    "labels.pairs=256",
    "labels.held_out_pairs=64",
    "generator.chunk_groups=32",
    "eval=none",
    "output.quiet=true",
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
COLUMNS = [
    "aimed ratio",
    "measured",
    "sync s",
    "async s",
    "speed-up",
    "ideal (sync's seconds)",
    "reached",
    "ideal (its own)",
    "reached ",
    "sync both cores s",
    "async against it",
]


@dataclass(frozen=True)
class Trial:
    """The three runs of one repeat."""

    sync: Measurement
    background: Measurement
    both: Measurement

    @property
    def ratio(self) -> float:
        """Seconds of generation over seconds of training, in sync."""
        work = work_of(self.sync, self.sync.settings)
        return work.generating / sum(work.train)

    @property
    def speed_up(self) -> float:
        return self.sync.wall / self.background.wall

    @property
    def ideal_of_sync(self) -> float:
        """Speed-up of the ideal timeline in which nothing takes longer than it did in sync."""
        own = self.background.settings
        work = work_of(self.sync, self.sync.settings)
        beside = ideal_timeline.ideal(work, own.max_staleness, own.num_generators).wall
        return ideal_timeline.ideal(work, 0, 0).wall / beside

    @property
    def ideal_of_own(self) -> float:
        """The same speed-up, with the ideal timeline of the seconds that async took."""
        return self.sync.wall / predict(self.background, self.background.settings).wall


def train(folder: Path, options: Sequence[str]) -> Measurement:
    """One run in a process of its own, measured."""
    program.run("train", *options, f"output.dir={folder}")
    return measured(folder)


def trials(out: Path, ratio: str, repeats: int, rounds: int) -> list[Trial]:
    """All runs of a ratio, taking turns so that a slow minute of the machine hits all alike."""
    options = [*COMMON, *RATIOS[ratio], f"output.cache={out}/.cache"]
    passes = 2 if "run.passes=2" in options else 1
    options.append(f"run.updates={rounds * passes}")
    found = []
    for repeat in range(repeats):
        runs = {
            name: train(out / f"ratio-{ratio}" / f"{name} {repeat}", [*options, *own])
            for name, own in SETTINGS.items()
        }
        found.append(Trial(*runs.values()))
    return found


def row(ratio: str, found: Sequence[Trial]) -> list[str]:
    """Means over the repeats, with the smallest and largest of what matters."""
    return [
        ratio,
        f"{mean([t.ratio for t in found]):.2f}",
        f"{mean([t.sync.wall for t in found]):.1f}",
        f"{mean([t.background.wall for t in found]):.1f}",
        spread([t.speed_up for t in found]),
        f"{mean([t.ideal_of_sync for t in found]):.2f}",
        f"{mean([t.speed_up / t.ideal_of_sync for t in found]):.0%}",
        f"{mean([t.ideal_of_own for t in found]):.2f}",
        f"{mean([t.speed_up / t.ideal_of_own for t in found]):.0%}",
        f"{mean([t.both.wall for t in found]):.1f}",
        spread([t.both.wall / t.background.wall for t in found]),
    ]


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: run everything, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description="Sync against async, side by side.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-async"))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ratios", nargs="+", choices=list(RATIOS), default=list(RATIOS))
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    busy = note(busy_cores(), usable_cores())
    if busy:
        console.print(busy)
    rows = []
    for ratio in given.ratios:
        console.print(f"ratio {ratio}: {given.repeats} times {', '.join(SETTINGS)}")
        rows.append(row(ratio, trials(given.out, ratio, given.repeats, given.rounds)))
    title = f"async against sync [smallest, largest of the repeats] {busy}".rstrip()
    program.report(Table(title, COLUMNS, rows), given.out / "bench_async.json", console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
