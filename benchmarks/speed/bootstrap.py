"""Time our bootstrap against rliable's on the same scores, in CPU seconds of one run.

python -m benchmarks.speed.bootstrap [--repetitions 10000] [--slow-repetitions 500]

`make bench-statistics`. rliable 1.2.0 is slow at some of it; there its repetitions are fewer, and
the ratio is of seconds per repetition.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.speed.rliable_bootstrap import Ends, Work, works
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table
from rlhf_lab_analysis.statistics.results import Options

REPEATS = 3


@dataclass(frozen=True)
class Timed:
    """CPU seconds of both (ours the least of a few), and how their results differ."""

    name: str
    our_seconds: float
    our_repetitions: int
    their_seconds: float
    their_repetitions: int
    points_apart: float
    ends_apart: float

    @property
    def ratio(self) -> float:
        """Their seconds per repetition over ours."""
        theirs = self.their_seconds / self.their_repetitions
        return theirs / (self.our_seconds / self.our_repetitions)


def time_call(function: Callable[[int], Ends], repetitions: int) -> tuple[Ends, float]:
    """The result, and the CPU seconds of all threads, which other programs do not prolong."""
    begin = time.process_time()
    found = function(repetitions)
    return found, time.process_time() - begin


def measure_both(work: Work, repetitions: int, slow_repetitions: int) -> Timed:
    """Theirs once, then ours a few times."""
    fewer = slow_repetitions if work.is_slow else repetitions
    theirs, their_seconds = time_call(work.theirs, fewer)
    tries = [time_call(work.ours, repetitions) for _ in range(REPEATS)]
    ours = tries[0][0]
    return Timed(
        work.name,
        min(seconds for _, seconds in tries),
        repetitions,
        their_seconds,
        fewer,
        float(np.abs(ours[0] - theirs[0]).max()),
        float(np.abs(ours[1:] - theirs[1:]).max()),
    )


def table(found: Sequence[Timed]) -> Table:
    rows = [
        [
            each.name,
            f"{each.our_seconds:.3f}",
            f"{each.their_seconds:.2f}",
            f"{each.their_repetitions:,}",
            f"{each.ratio:.0f}",
            f"{each.points_apart:.0e}",
            f"{each.ends_apart:.4f}",
        ]
        for each in found
    ]
    columns = [
        "intervals",
        f"ours, CPU s for {found[0].our_repetitions:,}",
        "rliable, CPU s",
        "its repetitions",
        "times as fast",
        "estimates apart",
        "ends apart",
    ]
    return Table("percentile bootstrap, ours and that of rliable 1.2.0", columns, rows)


def run(given: argparse.Namespace, console: Console) -> None:
    """Measure both, and print the table."""
    if given.slow_repetitions < 1:
        raise UserError(f"slow_repetitions={given.slow_repetitions}: pass at least 1")
    repetitions = Options(repetitions=given.repetitions).repetitions
    shown = table([measure_both(work, repetitions, given.slow_repetitions) for work in works()])
    console.table(shown.title, shown.columns, shown.rows)
    for line in shown.markdown:
        console.print(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if an option cannot be."""
    parser = argparse.ArgumentParser(description="Our bootstrap against rliable's.")
    parser.add_argument("--repetitions", type=int, default=10_000)
    parser.add_argument("--slow-repetitions", type=int, default=500, help="of rliable's slow ones")
    given = parser.parse_args(arguments)
    return exit_code("bench_statistics", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
