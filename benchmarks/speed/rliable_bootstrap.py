"""Define intervals that rliable and our bootstrap both compute, as functions of the repetitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rliable import library, metrics

from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregate_curves, aggregates, iqm
from rlhf_lab_analysis.statistics.arrays import Floats, generator
from rlhf_lab_analysis.statistics.improvement import probability_of_improvement
from rlhf_lab_analysis.statistics.profiles import performance_profiles
from rlhf_lab_analysis.statistics.results import Options

# Estimates and the two ends of their intervals: (3, M).
Ends = Floats


@dataclass(frozen=True)
class Work:
    """The same intervals by both, as functions of the repetitions."""

    name: str
    is_slow: bool
    ours: Callable[[int], Ends]
    theirs: Callable[[int], Ends]


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
