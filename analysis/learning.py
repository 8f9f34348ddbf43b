"""Train every algorithm over seeds: in sync, one round stale, and at N=16. Half an hour or more.

python -m analysis.learning [--out FOLDER] [--jobs 2] [--seeds 1,2,3] [--algos grpo,ppo]

Every run is a real one (`rlhf-lab train`). A folder that was left half done is gone on with.
`python -m analysis.algorithms FOLDER` makes the tables.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlhf_lab.experiment.registry import group_options
from rlhf_lab.runs.trackers.console import Console

COMMON = (
    "reward=task_rule",
    "run.updates=32",
    "run.groups_per_update=16",
    "run.group_size=4",
    "optim.lr=2e-4",
    "eval.prompts=256",
    "eval.snapshots=1",
    "tracker.probe_groups=0",
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
    "gspo": ("algo.clip_low=0.1", "algo.clip_high=0.1"),
    "dpo": ("run.group_size=2",),
}


def train(out: Path, algo: str, condition: str, seeds: str) -> str:
    """All seeds of an algorithm under a condition, in a process of its own; its last words if it
    failed, else nothing."""
    command = [
        sys.executable,
        "-m",
        "rlhf_lab.cli.main",
        "train",
        "-m",
        f"algo={algo}",
        f"seed={seeds}",
    ]
    where = f"output.dir={out}/{algo}-{condition}-seed${{seed}}"
    roots = (f"output.root={out}", f"output.cache={out}/.cache")
    options = [*COMMON, *CONDITIONS[condition], *OWN.get(algo, ()), *roots]
    done = subprocess.run([*command, *options, where], capture_output=True, text=True)
    return done.stderr[-2000:] if done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 1 if a run failed, the others go on."""
    parser = argparse.ArgumentParser(description="Train every algorithm over seeds.")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--algos", default=",".join(group_options()["algo"]))
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    cache = f"output.cache={given.out}/.cache"
    sft = [sys.executable, "-m", "rlhf_lab.cli.main", "sft", "-m", f"seed={given.seeds}", cache]
    subprocess.run([*sft, "output.quiet=true"], check=True)
    wanted = [(algo, name) for algo in given.algos.split(",") for name in CONDITIONS]
    failed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        endings = pool.map(lambda one: train(given.out, one[0], one[1], given.seeds), wanted)
        for (algo, name), words in zip(wanted, endings, strict=True):
            console.print(f"{algo} {name}: {words or 'trained'}")
            failed += bool(words)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
