"""Time what a sweep adds to its runs: 24 jobs with 1 and 2 workers, and a sweep that is stopped.

python -m benchmarks.speed.sweep [--out FOLDER] [--updates 64] [--stops 3]

Every sweep is a real one (`rlhf-lab train -m`) on `task=arithmetic`, which has no proxy to train.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.speed import program
from benchmarks.speed.clock import elapsed
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table

SWEPT = ("algo=grpo,rloo,reinforce", "run.updates_per_round=1,4", "seed=1,2,3,4")
JOBS = 24
COMMON = (
    "task=arithmetic",
    "reward=task_rule",
    "sft.steps=60",
    "run.group_size=4",
    "run.groups_per_update=16",
    "eval.prompts=128",
    "eval.snapshots=1",
    "checkpoint=rounds",
    "checkpoint.rounds=4",
)
LAUNCHERS = {1: ("launcher=local",), 2: ("launcher=joblib", "hydra.launcher.n_jobs=2")}


@dataclass(frozen=True)
class Whole:
    """A sweep from its command to its end, in seconds. own: the sum over its runs of the time from
    start to end in their manifests."""

    workers: int
    wall: float
    own: float

    @property
    def overhead(self) -> float:
        """Seconds of a worker per job outside the runs: starting the sweep, checking, launching."""
        return (self.wall * self.workers - self.own) / JOBS


@dataclass(frozen=True)
class Stopped:
    """A sweep of one job that was cut off in the middle and started again: seconds of both tries,
    and of a sweep that was left alone."""

    how: str
    alone: float
    both: float

    @property
    def lost(self) -> float:
        return self.both - self.alone


def swept(out: Path, workers: int, updates: int) -> Whole:
    """One whole sweep into a folder of its own."""
    root = out / f"workers-{workers}"
    words = [*COMMON, *SWEPT, *LAUNCHERS[workers], f"run.updates={updates}"]
    where = [f"output.root={root}", f"output.cache={out}/.cache", "output.quiet=true"]
    wall = elapsed(lambda: program.run("train", "-m", *words, *where))
    found = list_runs(root)
    assert len(found) == JOBS, f"{len(found)} runs in {root}"
    return Whole(workers, wall, sum(seconds_of(run.manifest) for run in found))


def seconds_of(manifest: object) -> float:
    """From a run's start to its end."""
    assert isinstance(manifest, dict)
    begun, ended = (datetime.fromisoformat(manifest[key]) for key in ("started", "ended"))
    return (ended - begun).total_seconds()


def one_job(out: Path, name: str, updates: int) -> list[str]:
    """The command of a sweep of one job."""
    words = [*COMMON, "algo=grpo", "seed=1", f"run.updates={updates}", "hydra.mode=MULTIRUN"]
    where = [f"output.root={out}/{name}", f"output.cache={out}/.cache", "output.quiet=true"]
    return program.command("train", *words, *where)


def run_timed(command: Sequence[str]) -> float:
    return elapsed(lambda: subprocess.run(command, check=True))


def cut_off(out: Path, name: str, updates: int, sent: signal.Signals) -> float:
    """Seconds of a sweep until it is cut off when half of its rounds are done, and of going on."""
    command = one_job(out, name, updates)
    start = time.perf_counter()
    sweep = subprocess.Popen(command)
    while rows_below(out / name) < updates // 2:
        assert sweep.poll() is None, "the sweep ended before it could be cut off"
        time.sleep(0.02)
    if sent is signal.SIGKILL:
        (run,) = list_runs(out / name)
        os.kill(run.manifest["process"]["pid"], sent)
    else:
        sweep.send_signal(sent)
    code = sweep.wait()
    assert code != 0, "it ended before the signal came"
    return time.perf_counter() - start + run_timed(command)


def rows_below(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.rglob(METRICS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: the stages, both sweeps in turn, and the sweeps that are cut off."""
    parser = argparse.ArgumentParser(description="Time what a sweep adds to its runs.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-sweep"))
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--stops", type=int, default=3)
    given = parser.parse_args(arguments)
    console, out = Console(quiet=False), given.out
    cache = (f"output.cache={out}/.cache", "output.quiet=true")
    program.run("stages", "-m", *COMMON, "seed=1,2,3,4", *cache)
    wholes = [swept(out, workers, given.updates) for workers in LAUNCHERS]
    rows = [
        [f"{one.workers}", f"{one.wall:.0f}", f"{one.own / JOBS:.1f}", f"{one.overhead:.1f}"]
        for one in wholes
    ]
    columns = ["workers", "wall s", "s of a run", "overhead s a job"]
    whole = Table(f"a sweep of {JOBS} jobs", columns, rows)
    program.report(whole, out / "bench_sweep.json", console)
    console.print(f"two workers against one: {wholes[0].wall / wholes[1].wall:.2f}x")
    alone = min(run_timed(one_job(out, f"alone-{n}", given.updates)) for n in range(given.stops))
    stopped = [
        Stopped(sent.name, alone, cut_off(out, f"{sent.name}-{n}", given.updates, sent))
        for sent in (signal.SIGTERM, signal.SIGKILL)
        for n in range(given.stops)
    ]
    rows = [[one.how, f"{one.alone:.1f}", f"{one.both:.1f}", f"{one.lost:.1f}"] for one in stopped]
    columns = ["cut off by", "left alone s", "both tries s", "lost s"]
    cut = Table("a job that is cut off", columns, rows)
    program.report(cut, out / "bench_stop.json", console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
