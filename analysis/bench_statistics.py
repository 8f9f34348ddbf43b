"""Our bootstrap against rliable's on the same scores, both timed in one run, in CPU seconds.

python -m analysis.bench_statistics [--repetitions 10000] [--slow-repetitions 500]

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
from rliable import library, metrics

from analysis.algorithms import Table
from analysis.statistics.aggregates import MEASURES, aggregate_curves, aggregates, iqm
from analysis.statistics.arrays import Floats, generator
from analysis.statistics.improvement import probability_of_improvement
from analysis.statistics.profiles import performance_profiles
from analysis.statistics.results import Options
from rlhf_lab.trackers.console import Console
from rlhf_lab.types import UserError

# Estimates and the two ends of their intervals: (3, M).
Ends = Floats
REPEATS = 3


@dataclass(frozen=True)
class Work:
    """The same intervals by both, as functions of the repetitions."""

    name: str
    is_slow: bool
    ours: Callable[[int], Ends]
    theirs: Callable[[int], Ends]


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


def rliable_iqm(scores_ST: Floats) -> Floats:
    return np.array([metrics.aggregate_iqm(scores_ST)])


def rliable_four(scores_ST: Floats) -> Floats:
    return np.array(
        [
            metrics.aggregate_iqm(scores_ST),
            metrics.aggregate_median(scores_ST),
            metrics.aggregate_mean(scores_ST),
            metrics.aggregate_optimality_gap(scores_ST),
        ]
    )


def rliable_improvement(first_ST: Floats, second_ST: Floats) -> Floats:
    return np.array([metrics.probability_of_improvement(first_ST, second_ST)])


def rliable_curve(scores_STF: Floats) -> Floats:
    return np.array([metrics.aggregate_iqm(frame) for frame in np.moveaxis(scores_STF, 2, 0)])


def of_rliable(
    scores: Floats | list[Floats], function: Callable[..., Floats], repetitions: int
) -> Ends:
    points, ends = library.get_interval_estimates({"": scores}, function, reps=repetitions)
    return np.vstack([points[""], ends[""]])


def aggregate_work(seeds: int, tasks: int, four: bool) -> Work:
    scores_ST = generator(0, "bench", str(seeds), str(tasks)).random((seeds, tasks))
    measures = MEASURES if four else {"iqm": iqm}

    def ours(repetitions: int) -> Ends:
        made = aggregates({"": scores_ST}, Options(repetitions=repetitions), measures)[""]
        return np.array([[each.point, each.low, each.high] for each in made.values()]).T

    def theirs(repetitions: int) -> Ends:
        return of_rliable(scores_ST, rliable_four if four else rliable_iqm, repetitions)

    name = "IQM, median, mean, gap" if four else "IQM"
    return Work(f"{name}; {seeds} seeds x {tasks} tasks", False, ours, theirs)


def improvement_work(seeds: int, tasks: int) -> Work:
    rng = generator(0, "bench improvement")
    first_ST, second_ST = rng.random((2, seeds, tasks))

    def ours(repetitions: int) -> Ends:
        made = probability_of_improvement(first_ST, second_ST, Options(repetitions=repetitions))
        return np.array([[made.point], [made.low], [made.high]])

    def theirs(repetitions: int) -> Ends:
        return of_rliable([first_ST, second_ST], rliable_improvement, repetitions)

    return Work(f"probability of improvement; {seeds} x {tasks}", True, ours, theirs)


def profile_work(seeds: int, tasks: int, points: int) -> Work:
    scores_ST = generator(0, "bench profile").random((seeds, tasks))
    taus = np.linspace(0, 1, points)

    def ours(repetitions: int) -> Ends:
        made = performance_profiles(
            {"": scores_ST}, taus.tolist(), Options(repetitions=repetitions)
        )
        return np.array([made[""].point, made[""].low, made[""].high])

    def theirs(repetitions: int) -> Ends:
        shares, ends = library.create_performance_profile({"": scores_ST}, taus, reps=repetitions)
        return np.vstack([shares[""], ends[""]])

    return Work(f"profile at {points} scores; {seeds} x {tasks}", True, ours, theirs)


def curve_work(seeds: int, tasks: int, frames: int) -> Work:
    scores_STF = generator(0, "bench curve").random((seeds, tasks, frames))
    grid = [float(frame) for frame in range(frames)]

    def ours(repetitions: int) -> Ends:
        made = aggregate_curves({"": scores_STF}, grid, Options(repetitions=repetitions))[""]
        return np.array([made.point, made.low, made.high])

    def theirs(repetitions: int) -> Ends:
        return of_rliable(scores_STF, rliable_curve, repetitions)

    return Work(f"IQM curve of {frames} points; {seeds} x {tasks}", True, ours, theirs)


def works() -> list[Work]:
    return [
        aggregate_work(10, 26, four=True),
        aggregate_work(10, 26, four=False),
        aggregate_work(5, 3, four=True),
        aggregate_work(5, 3, four=False),
        improvement_work(10, 26),
        profile_work(10, 26, 201),
        curve_work(10, 26, 20),
    ]


def timed(function: Callable[[int], Ends], repetitions: int) -> tuple[Ends, float]:
    """The result, and the CPU seconds of all threads, which other programs do not prolong."""
    begin = time.process_time()
    found = function(repetitions)
    return found, time.process_time() - begin


def measured(work: Work, repetitions: int, slow_repetitions: int) -> Timed:
    """Theirs once, then ours a few times."""
    fewer = slow_repetitions if work.is_slow else repetitions
    theirs, their_seconds = timed(work.theirs, fewer)
    tries = [timed(work.ours, repetitions) for _ in range(REPEATS)]
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if an option cannot be."""
    parser = argparse.ArgumentParser(description="Our bootstrap against rliable's.")
    parser.add_argument("--repetitions", type=int, default=10_000)
    parser.add_argument("--slow-repetitions", type=int, default=500, help="of rliable's slow ones")
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    try:
        if given.slow_repetitions < 1:
            raise UserError(f"slow_repetitions={given.slow_repetitions}: pass at least 1")
        found = [
            measured(
                work, Options(repetitions=given.repetitions).repetitions, given.slow_repetitions
            )
            for work in works()
        ]
    except UserError as error:
        sys.stderr.write(f"bench_statistics: {error}\n")
        return 2
    shown = table(found)
    console.table(shown.title, shown.columns, shown.rows)
    for line in shown.markdown:
        console.say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
