"""CPU seconds of a training run by this checkout of the repository, against those by another one.

python -m benchmarks.speed.checkouts OTHER [--pairs 12] [KEY=VALUE ...]

OTHER is the folder of a second checkout, as `git worktree add OTHER COMMIT` makes it. A pair is
`rlhf-lab train KEY=VALUE ...` by either checkout. Both run at the same time, each in a process with
one thread, so that other work on the machine slows both. Each checkout has its own cache of stages.
The first pair makes the stages and is not counted. Seconds are those of the whole process, user and
system, with its start and its imports.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.clock import Spread
from benchmarks.speed.program import command
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.intervals import mean_ends

ROOT = Path(__file__).resolve().parents[2]
RUN = ("algo=grpo", "run.group_size=4", "run.updates=24", "eval.snapshots=0")
LEVEL = 0.95


def start(checkout: Path, words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Begin `rlhf-lab train WORDS` by the code of a checkout."""
    options = [*RUN, *words, "output.quiet=true", f"output.dir={folder}"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command("train", *options), cwd=checkout, env=environment)


def seconds_of(run: subprocess.Popen[bytes]) -> float:
    """Wait for the end of a run, and return the CPU seconds of its process. Raises UserError if it
    fails."""
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise UserError(f"the run ended with code {run.returncode}: correct its options")
    return usage.ru_utime + usage.ru_stime


def time_pairs(other: Path, words: Sequence[str], pairs: int) -> list[tuple[float, float]]:
    """CPU seconds of this checkout and of the other one, for each pair that counts."""
    found = []
    for _ in range(pairs + 1):
        with tempfile.TemporaryDirectory() as folder:
            sides = ((ROOT, Path(folder, "this")), (other, Path(folder, "other")))
            runs = [start(checkout, words, where) for checkout, where in sides]
            try:
                this, that = (seconds_of(run) for run in runs)
            finally:
                # Where one side fails, the other one must be gone before its folder is.
                for run in runs:
                    run.kill()
                    run.wait()
        found.append((this, that))
    return found[1:]


def ratio_text(pairs: Sequence[tuple[float, float]]) -> str:
    """The geometric mean of the ratios within pairs, with its t interval."""
    logs = [math.log(this / that) for this, that in pairs]
    low, high = (math.exp(end) for end in mean_ends(logs, LEVEL))
    middle = math.exp(sum(logs) / len(logs))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}] ({LEVEL:.0%} t interval, {len(logs)} pairs)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="Time a run by two checkouts.")
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--pairs", type=int, default=12, help="runs of each that count (12)")
    parser.add_argument("options", nargs="*", help=f"overrides, after {' '.join(RUN)}")
    given = parser.parse_args(arguments)
    other = given.other.resolve()
    if not (other / "src" / "rlhf_lab").is_dir():
        raise UserError(
            f"{other} holds no src/rlhf_lab: pass a checkout, as `git worktree add OTHER COMMIT` "
            "makes it"
        )
    if given.pairs < 2:
        raise UserError(f"--pairs {given.pairs}: an interval takes 2 or more")
    found = time_pairs(other, given.options, given.pairs)
    console = Console(quiet=False)
    this, that = (Spread.of(side).text(".1f") for side in zip(*found, strict=True))
    console.print(f"CPU seconds: {this} by this checkout, {that} by {other}")
    console.print(f"ratio: {ratio_text(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
