"""Time a job of the nano benchmark by its parts, in seconds of one core.

python -m benchmarks.speed.nano_job [--repeats 5] [--out FOLDER] [KEY=VALUE ...]

Jobs start as those of a sweep do, from a server that has all modules imported. The first one makes
the stages where they are missing, and is not counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.speed.clock import Spread
from benchmarks.speed.job_parts import TOTAL, run_job
from benchmarks.speed.program import report
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.child import pin
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.markdown import Table

JOB = (
    *("train", "--config-name=off_policy_ladder_nano", "hydra.mode=RUN"),
    *("run.updates_per_round=1", "tuned=ppo", "stage_seed=1", "seed=1", "output.quiet=true"),
)


def seconds_of_job(words: Sequence[str], out: Path) -> dict[str, float]:
    """Run a job in a process of its own, and return the seconds of its parts. Raises UserError if
    it fails."""
    result, folder = out / "parts.json", out / "job"
    shutil.rmtree(folder, ignore_errors=True)
    result.unlink(missing_ok=True)
    where = [f"output.root={out}", f"output.dir={folder}"]
    child = forkserver.start(run_job, ([*JOB, *where, *words], result), name="nano-job")
    child.join()
    if child.exitcode or not result.exists():
        raise UserError(
            f"the job ended with code {child.exitcode}: see above, and correct {' '.join(words)}"
        )
    found: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))
    return found


def table_of(jobs: Sequence[Mapping[str, float]]) -> Table:
    """A row for each part, the largest first, and the total in jobs per hour of a core."""
    names = {name for job in jobs for name in job}
    spreads = {name: Spread.of([job.get(name, 0.0) for job in jobs]) for name in names}
    order = sorted(names, key=lambda name: -spreads[name].middle)
    whole = spreads[TOTAL].middle
    rows = [
        [name, spreads[name].text(".2f"), f"{spreads[name].middle / whole:.0%}"] for name in order
    ]
    title = f"a nano job: {3600 / whole:.0f} in an hour of a core"
    return Table(title, ["part", "s of a core, median of jobs", "share"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: one job that is not counted, then `--repeats` others."""
    parser = argparse.ArgumentParser(description="Time a nano job by its parts.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-job"))
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="changes to the job")
    given = parser.parse_intermixed_args(arguments)
    pin(1)
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = [seconds_of_job(given.words, given.out) for _ in range(given.repeats + 1)][1:]
    report(table_of(jobs), given.out / "bench_job.json", Console(quiet=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
