"""Train every algorithm over seeds: in sync, one round stale, and at N=16. Half an hour or more.

python -m benchmarks.speed.train_algorithms [--out FOLDER] [--jobs 2] [--seeds 1,2,3]
      [--algos ppo]

Every run is a real one (`rlhf-lab train`); a run that was cut off is resumed.
`python -m benchmarks.pages.learning FOLDER` makes the tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from benchmarks.speed import program
from rlhf_lab.experiment.config.groups import CLASSES
from rlhf_lab_analysis.command import exit_code

COMMON = (
    *("reward=task_rule", "run.updates=32", "run.groups_per_update=16", "run.group_size=4"),
    *("optim.lr=2e-4", "eval.prompts=256", "eval.snapshots=1", "tracker.probe_groups=0"),
    "output.quiet=true",
)
CONDITIONS = {
    "sync": ("mode=sync",),
    "async": ("mode=async", "mode.executor=thread"),
    "n16": ("mode=sync", "run.updates_per_round=16"),
}
# Where a default is meant for another scale: values that begin at zero need lam=1 (VC-PPO,
# arXiv:2503.01491), the paper's bounds of GSPO for small steps of large models, and pairs are two.
OWN = {
    "ppo": ("algo.lam=1",),
    "sao": ("algo.lam=1", "algo.lam_alpha=0"),
    "mdpo": ("algo.lam=1",),
    "gspo": ("algo.clip_low=0.1", "algo.clip_high=0.1"),
    "dpo": ("run.group_size=2",),
}
# It learns from a teacher, which the task does not bring.
WITHOUT_TEACHER = sorted(set(CLASSES["algo"]) - {"distill"})


def train(given: argparse.Namespace, algo: str, condition: str) -> None:
    """Train all seeds of an algorithm under a condition. Raises UserError if a run fails."""
    options = [*COMMON, *CONDITIONS[condition], *OWN.get(algo, ()), f"output.root={given.out}"]
    folder = f"output.dir={given.out}/{algo}-{condition}-seed${{seed}}"
    where = (f"output.cache={given.out}/.cache", folder)
    program.run("train", "-m", f"algo={algo}", f"seed={given.seeds}", *options, *where)


def train_all(given: argparse.Namespace) -> None:
    cache = f"output.cache={given.out}/.cache"
    program.run("sft", "-m", f"seed={given.seeds}", cache, "output.quiet=true")
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = product(given.algos.split(","), CONDITIONS)
        jobs = [pool.submit(train, given, algo, condition) for algo, condition in runs]
    for job in jobs:
        job.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if a run failed, after all others were trained."""
    parser = argparse.ArgumentParser(description="Train every algorithm over seeds.")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--algos", default=",".join(WITHOUT_TEACHER))
    given = parser.parse_args(arguments)
    return exit_code("train_algorithms", lambda: train_all(given))


if __name__ == "__main__":
    sys.exit(main())
