"""Real asynchronous runs (`rlhf-lab train`) against sync ones and against what is predicted.

python -m benchmarks.speed.async_runs sync [--out FOLDER] [--repeats 2] [--rounds 30]
python -m benchmarks.speed.async_runs plan [--out FOLDER] [--rounds 20]
python -m benchmarks.speed.async_runs virtual [--out FOLDER] [--rounds 20]

sync: at three ratios of generation to training, with a core for each; sync, async and sync on both
cores take turns. Printed per ratio: generation over training seconds of a sync round; async's
speed-up over sync; the ideal speed-up by the planner's ideal timeline, from the seconds that sync
took (so that what the cores take from each other counts against async) and from async's own; and
what sync gains from the second core.

plan: one async run is measured; from it alone the wall-clock of other settings is predicted, and
then each of them is run.

virtual: runs of mode=free at three ratios, and the virtual cluster that is fitted to each: virtual
seconds against real ones, and total variation of the lags.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.speed import program
from rlhf_lab.experiment.planning import ideal_timeline
from rlhf_lab.experiment.planning.cluster_fit import distance, fitted
from rlhf_lab.experiment.planning.planner import predict, work_of
from rlhf_lab.experiment.planning.settings import changed
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
# A round of twice the updates, or a pass more, is a longer run, not one of fewer rounds.
LONGER = ("run.passes=2", "run.updates_per_round=2")
OTHERS = (
    *("run.group_size=4", "run.group_size=8", *LONGER, "run.groups_per_update=32"),
    *("generator.chunk_groups=16", "mode.max_staleness=3", "mode=sync"),
)
FREE = (
    *("stages=nano", "reward=task_rule", "algo=grpo", "run.group_size=4", "mode=free"),
    *("mode.max_staleness=2", "eval=none", "eval.snapshots=0", "output.quiet=true", "sft.steps=20"),
)
# Passes over a round's samples, groups written for each that is trained on, and groups of a chunk,
# of which few are slow to write, for generation over training of about 0.5, 1 and 2.
FREE_RATIOS = {"0.5": (3, 1, 4), "1": (1, 2, 4), "2": (1, 2, 1)}


def train(folder: Path, options: Sequence[str]) -> Measurement:
    """One run in a process, measured."""
    program.run("train", *options, f"output.cache={folder.parent}/.cache", f"output.dir={folder}")
    return measured(folder)


def against_sync(given: argparse.Namespace) -> Table:
    """A row for each ratio: means over the repeats, with the smallest and the largest."""
    rows = []
    for ratio, own in RATIOS.items():
        rounds = given.rounds * (2 if "run.passes=2" in own else 1)
        options = [*COMMON, *own, f"run.updates={rounds}"]

        def one(
            name: str, repeat: int, ratio: str = ratio, options: list[str] = options
        ) -> Measurement:
            return train(given.out / f"ratio-{ratio} {name} {repeat}", [*options, *SETTINGS[name]])

        sides = {name: functools.partial(one, name) for name in SETTINGS}
        runs = program.in_turns(sides, given.repeats)
        trials = [numbers(*three) for three in zip(*runs.values(), strict=True)]
        columns = {name: [trial[name] for trial in trials] for name in trials[0]}
        texts = [
            f"{statistics.fmean(v):.2f} [{min(v):.2f}, {max(v):.2f}]" for v in columns.values()
        ]
        rows.append([ratio, *texts])
    return Table("async against sync, means [smallest, largest]", ["aimed ratio", *columns], rows)


def numbers(sync: Measurement, background: Measurement, both: Measurement) -> dict[str, float]:
    """What the three runs of one repeat show, by column. The ideal from sync's seconds is the
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


def against_plan(given: argparse.Namespace) -> Table:
    """A row for each changed setting."""
    options = [*COMMON, "run.group_size=2", f"run.updates={given.rounds}"]
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
    columns = ["settings", "predicted s", "took s", "error", "waits predicted", "waits took"]
    return Table(title, columns, rows)


def against_virtual(given: argparse.Namespace) -> Table:
    """A row for each ratio: a real run, and the errors of the virtual cluster fitted to it."""
    rows = []
    for ratio, (passes, written, chunk_groups) in FREE_RATIOS.items():
        folder = given.out / f"free {ratio}"
        sizes = (f"run.groups_per_update={32 // written}", f"run.oversample={written}")
        passing = (f"run.passes={passes}", f"run.updates={given.rounds * passes}")
        run = train(folder, [*FREE, f"generator.chunk_groups={chunk_groups}", *sizes, *passing])
        fit = fitted(folder)
        lags, wall = fit.predicted()
        measured_ratio = work_of(run, run.settings).generating / (run.wall - run.trainer_wait)
        seconds = (f"{fit.wall:.1f}", f"{wall:.1f}", f"{wall / fit.wall - 1:+.1%}")
        far = f"{distance(fit.lags, lags):.3f}"
        rows.append([ratio, f"{measured_ratio:.2f}", *seconds, far])
    columns = ["aimed ratio", "measured", "real s", "virtual s", "error", "total variation of lags"]
    return Table("real runs of mode=free, predicted by fitted virtual clusters", columns, rows)


STUDIES: dict[str, tuple[Callable[[argparse.Namespace], Table], int]] = {
    "sync": (against_sync, 30),
    "plan": (against_plan, 20),
    "virtual": (against_virtual, 20),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: run everything, print the table, keep it as JSON."""
    parser = argparse.ArgumentParser(description="Real async runs against sync and predictions.")
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-async"))
    parser.add_argument("--repeats", type=int, default=2, help="of sync and async runs")
    parser.add_argument("--rounds", type=int)
    given = parser.parse_args(arguments)
    study, rounds = STUDIES[given.study]
    given.rounds = given.rounds or rounds
    console = Console(quiet=False)
    console.print(program.busy_note())
    program.report(study(given), given.out / f"bench_{given.study}.json", console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
