"""What a sweep adds to its runs: 24 jobs with 1 and 2 workers, and a sweep that is stopped.

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
from datetime import datetime
from pathlib import Path

from benchmarks.speed import program
from rlhf_lab.runs.folder import METRICS
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


def one_job(root: Path, options: Sequence[str], sent: signal.Signals | None = None) -> float:
    """Seconds of a sweep of one job; if a signal is sent, of the sweep that it cuts off when half
    of the rounds are done and of the same one started again. SIGKILL goes to the job alone."""
    words = [*options, "algo=grpo", "seed=1", "hydra.mode=MULTIRUN", f"output.root={root}"]
    updates = int(dict(word.split("=", 1) for word in options)["run.updates"])
    start = time.perf_counter()
    if sent is not None:
        sweep = subprocess.Popen(program.command("train", *words))
        while sum(p.read_bytes().count(b"\n") for p in root.rglob(METRICS)) < updates // 2:
            assert sweep.poll() is None, "the sweep ended before it could be cut off"
            time.sleep(0.02)
        if sent is signal.SIGKILL:
            (run,) = list_runs(root)
            os.kill(run.manifest["process"]["pid"], sent)
        else:
            sweep.send_signal(sent)
        assert sweep.wait() != 0, "it ended before the signal came"
    program.run("train", *words)
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: the stages, both sweeps in turn, and the sweeps that are cut off."""
    parser = argparse.ArgumentParser(description="Time what a sweep adds to its runs.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-sweep"))
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--stops", type=int, default=3)
    given = parser.parse_args(arguments)
    console, out, tries = Console(quiet=False), given.out, range(given.stops)
    options = [*COMMON, f"output.cache={out}/.cache", f"run.updates={given.updates}"]
    program.run("stages", "-m", *options, "seed=1,2,3,4")
    columns = ["workers", "wall s", "s of a run", "outside of runs, s a job"]
    rows = [whole_row(out, workers, options) for workers in LAUNCHERS]
    program.report(Table(f"a sweep of {JOBS} jobs", columns, rows), out / "sweep.json", console)
    alone, rows = min(one_job(out / f"alone-{n}", options) for n in tries), []
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for n in tries:
            both = one_job(out / f"{sent.name}-{n}", options, sent)
            rows.append([sent.name, f"{alone:.1f}", f"{both:.1f}", f"{both - alone:.1f}"])
    columns = ["cut off by", "left alone s", "both tries s", "lost s"]
    program.report(Table("a job that is cut off", columns, rows), out / "stop.json", console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
