"""What claims measure: a number of each seed, of two conditions or of one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.equal_kl import at_equal_kl, at_equal_quality
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.stable_rates import (
    seeds_slopes,
    slope_estimate,
    times_of,
    trials_of,
)
from rlhf_lab_analysis.statistics.contrasts import seeds_to_pair
from rlhf_lab_analysis.statistics.curves import areas, common_range, curve_of, values_on_grid
from rlhf_lab_analysis.statistics.results import Estimate, Options
from rlhf_lab_analysis.words import VIRTUAL, WALL

Effects: TypeAlias = dict[int, float]
OfOne: TypeAlias = Callable[[Cell, Criteria], Effects]
OfTwo: TypeAlias = Callable[[Cell, Cell, Criteria], Effects]
# Conditions by the levels of the settings that they differ in.
Levels: TypeAlias = Mapping[tuple[Any, ...], Cell]
# The number with its interval at a level, where it is no mean of the effects.
Fit: TypeAlias = Callable[[Options], Estimate]
OfMany: TypeAlias = Callable[[Levels, Criteria], tuple[Effects, Fit | None]]
QUARTER = 4
OVERLAP = "speed-up / ((g + t) / max(g, t))"
SLOPE = "slope of log {1} on log({0} + 1)"


TIMED = (
    "wall_clock",
    "speed_up_over_overlap",
    "quality_at_equal_wall_clock",
    "quality_at_equal_device_hours",
)
# The largest difference that does not matter; that of shares is the user's.
MARGINS = {Unit.nats: 0.1, Unit.times: 0.05, Unit.exponent: 0.25, Unit.updates: 4.0}


@dataclass(frozen=True)
class Measure:
    """One of three: the number of a condition by seed, what the first of two has more than the
    second, or a number of conditions over so many settings (`keys`). unit: of all; times are
    logarithms. margin: where it is not that of the unit. label: what the number is, where that is
    not the change; of many, with the settings in braces. beside: what it is called beside another
    one, where it has no label."""

    name: str
    unit: Unit
    of_one: OfOne | None = None
    of_two: OfTwo | None = None
    of_many: OfMany | None = None
    keys: int = 0
    margin: float | None = None
    label: str = ""
    beside: str = ""

    @property
    def is_timed(self) -> bool:
        """Whether it is of measured seconds, which only runs of one sweep have in common."""
        return self.name in TIMED

    @property
    def title(self) -> str:
        """What it is called."""
        return self.label or self.beside or self.name

    def effects(self, after: Cell, before: Cell, criteria: Criteria) -> Effects:
        """What a condition has more than another one, by seed."""
        if self.of_one:
            return minus(self.of_one(after, criteria), self.of_one(before, criteria))
        assert self.of_two, f"{self.name} is of many conditions"
        return self.of_two(after, before, criteria)

    def margin_of(self, criteria: Criteria) -> float:
        """The margin in the scale of the effects: that of a ratio is a logarithm."""
        usual = {Unit.points: criteria.margin} | MARGINS
        margin = usual[self.unit] if self.margin is None else self.margin
        return math.log1p(margin) if self.unit is Unit.times else margin


def minus(first: Mapping[int, float], second: Mapping[int, float]) -> Effects:
    """The difference of each common seed."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}


def quality(cell: Cell, criteria: Criteria) -> Effects:
    return cell.scores(criteria.quality)


def accuracy(cell: Cell, criteria: Criteria) -> Effects:
    """The mean gold reward of a task whose rule rewards a response with 0 or 1. A win-rate against
    the reference would count a right response only where the reference is wrong."""
    return cell.scores("gold/mean")


def kl(cell: Cell, criteria: Criteria) -> Effects:
    return cell.scores(criteria.drift)


def gain(cell: Cell, criteria: Criteria) -> Effects:
    """The last version's quality less that of version 0, which is SFT, on the same prompts."""
    return minus(cell.ways_end(criteria.quality), cell.starts(criteria.quality))


def on_average(cell: Cell, other: Cell, criteria: Criteria) -> Effects:
    """The area under a run's curve over updates, divided by their number, from versions of as many
    updates as the other has some: a finer curve would be another measure. A run with fewer than
    two of these is left out."""
    theirs = {x for xs, _ in other.paths("x/updates", criteria.quality).values() for x in xs}
    found = {}
    for seed, (xs, ys) in cell.paths("x/updates", criteria.quality).items():
        shared = [(x, y) for x, y in zip(xs, ys, strict=True) if x in theirs]
        if len(shared) > 1:
            x, y = zip(*shared, strict=True)
            found[seed] = float(areas([curve_of(f"seed {seed}", x, y)])[0][0])
    return found


def over_updates(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Mean quality over the updates, at the versions that both have."""
    return minus(on_average(after, before, criteria), on_average(before, after, criteria))


def after_a_quarter(cell: Cell, criteria: Criteria) -> Effects:
    """Quality after a quarter of the updates, of runs with a version of that time."""
    paths = cell.paths("x/updates", criteria.quality)
    return {
        seed: ys[xs.index(xs[-1] / QUARTER)]
        for seed, (xs, ys) in paths.items()
        if xs[-1] / QUARTER in xs
    }


def of_all(compare: Callable[[Cell, Cell, str, str], Effects]) -> OfTwo:
    """Mean distance of the frontiers over what both runs have in common: the KL that they were
    evaluated around, or the quality that both reach.

    Nothing unless every common seed has some in common: to leave one out would be to choose seeds
    by what happened in them. A run that is lost leaves its seed out, here as in all pairs.
    """

    def of_pair(after: Cell, before: Cell, criteria: Criteria) -> Effects:
        found = compare(after, before, criteria.quality, criteria.drift)
        return found if set(found) == set(seeds_to_pair(after.seeds, before.seeds)) else {}

    return of_pair


def updates_before_collapse(cell: Cell, criteria: Criteria) -> Effects:
    """Updates of each run until it collapses, or all of them: a mean up to a horizon, which is the
    end of the runs."""
    times = times_of(cell)
    return dict(zip(times.seeds, times.time_S.tolist(), strict=True)) if times else {}


def log_ratio(after: Cell, before: Cell, axis: str) -> Effects:
    """log(after / before) of what the whole run took of an axis."""
    spent = before.at_end(axis)
    return {
        seed: math.log(value / spent[seed])
        for seed, value in after.at_end(axis).items()
        if seed in spent
    }


def taken(axis: str) -> OfTwo:
    """log(after / before): how many times more of an axis the whole run took."""
    return lambda after, before, _: log_ratio(after, before, axis)


def saved(axis: str) -> OfTwo:
    """log(before / after): how many times less of an axis the whole run took."""
    return lambda after, before, _: log_ratio(before, after, axis)


def over_overlap(axis: str, whole: str, generating: str) -> OfTwo:
    """log of the speed-up of `after` less log of (g + t) / max(g, t) of the seconds of `before`,
    where g is what its trainer waits for samples. axis: of the clock; whole, generating: the
    metrics of all its seconds and of g."""

    def of_pair(after: Cell, before: Cell, criteria: Criteria) -> Effects:
        take, all_of_it = before.last_recorded(generating), before.last_recorded(whole)
        return {
            seed: value - math.log(all_of_it[seed] / max(take[seed], all_of_it[seed] - take[seed]))
            for seed, value in log_ratio(before, after, axis).items()
            if seed in take and seed in all_of_it
        }

    return of_pair


def at_equal(axis: str) -> OfTwo:
    """Quality of both at the cost, on this axis, at which the cheaper run of a seed ended; on
    straight lines between evaluated versions."""

    def of_pair(after: Cell, before: Cell, criteria: Criteria) -> Effects:
        curves = [cell.curves(axis, criteria.quality) for cell in (after, before)]
        found = {}
        for seed in sorted(set(curves[0]) & set(curves[1])):
            pair = [one[seed] for one in curves]
            spent = np.array([common_range(pair)[1]])
            first, second = (float(values_on_grid([curve], spent)[0, 0]) for curve in pair)
            found[seed] = first - second
        return found

    return of_pair


def per_doubling(of_one: OfOne) -> OfMany:
    """What each doubling of a setting changes, by least squares on its binary logarithm."""

    def of_many(levels: Levels, criteria: Criteria) -> tuple[Effects, None]:
        numbers = [of_one(cell, criteria) for cell in levels.values()]
        x = np.log2([float(level) for (level,) in levels])
        x -= x.mean()
        seeds = sorted(set.intersection(*(set(one) for one in numbers)))
        return {seed: float(x @ [one[seed] for one in numbers] / (x @ x)) for seed in seeds}, None

    return of_many


def boundary_slope(than: float) -> OfMany:
    """The exponent of staleness, plus 1, in the largest stable learning rate, less a number; of
    conditions by staleness and rate."""

    def of_many(levels: Levels, criteria: Criteria) -> tuple[Effects, Fit]:
        fallen = {(float(age), float(rate)): times_of(c) for (age, rate), c in levels.items()}
        trials = trials_of(fallen)
        effects = {seed: slope - than for seed, slope in seeds_slopes(trials).items()}
        return effects, functools.partial(slope_estimate, trials, than)

    return of_many


DOUBLED, DOUBLING = per_doubling(quality), "per doubling of {}"
OVER_INVERSE, OVER_SLOPE = "boundary_slope_over_inverse", f"{SLOPE}, less -1"
BOUNDARY, INVERSE = boundary_slope(0.0), boundary_slope(-1.0)
REAL = over_overlap(WALL, "seconds/wall", "seconds/take")
ON_CLUSTER = over_overlap(VIRTUAL, "virtual_seconds/wall", "virtual_seconds/wait")
HOURS, FLOPS, COMPLETIONS = "x/device_hours", "x/flops", "x/completions"
SHARE, NATS, TIMES, UPDATES, EXPONENT = (
    Unit.points,
    Unit.nats,
    Unit.times,
    Unit.updates,
    Unit.exponent,
)
AT_QUALITY, AT_HOURS = "at equal win-rate", "at equal device-hours"
AVERAGE = "mean over the updates"
EVERY = (
    Measure("quality", SHARE, quality),
    Measure("accuracy", SHARE, accuracy),
    Measure("gain_over_sft", SHARE, gain, label="gain over SFT"),
    Measure("quality_after_a_quarter", SHARE, after_a_quarter),
    Measure("kl", NATS, kl, beside="KL to SFT"),
    Measure("updates_before_collapse", Unit.updates, updates_before_collapse),
    Measure("quality_over_updates", SHARE, of_two=over_updates, beside=AVERAGE),
    Measure("quality_at_equal_kl", SHARE, of_two=of_all(at_equal_kl)),
    Measure(
        "kl_at_equal_quality", NATS, of_two=of_all(at_equal_quality), label="at equal win-rate"
    ),
    Measure("quality_at_equal_wall_clock", SHARE, of_two=at_equal(WALL)),
    Measure("quality_at_equal_virtual_wall_clock", SHARE, of_two=at_equal(VIRTUAL)),
    Measure("quality_at_equal_device_hours", SHARE, of_two=at_equal(HOURS), label=AT_HOURS),
    Measure("quality_at_equal_flops", SHARE, of_two=at_equal(FLOPS), label="at equal FLOPs"),
    Measure("wall_clock", TIMES, of_two=taken(WALL)),
    Measure("virtual_wall_clock", TIMES, of_two=taken(VIRTUAL)),
    Measure("completions_saved", TIMES, of_two=saved(COMPLETIONS), label="completions saved"),
    Measure("flops_saved", TIMES, of_two=saved(FLOPS), label="FLOPs saved"),
    Measure("speed_up_over_overlap", TIMES, of_two=REAL, margin=0.1, label=OVERLAP),
    Measure("virtual_speed_up_over_overlap", TIMES, of_two=ON_CLUSTER, margin=0.1, label=OVERLAP),
    Measure("quality_per_doubling", SHARE, of_many=DOUBLED, keys=1, margin=0.003, label=DOUBLING),
    Measure("boundary_slope", Unit.exponent, of_many=BOUNDARY, keys=2, margin=0, label=SLOPE),
    Measure(OVER_INVERSE, Unit.exponent, of_many=INVERSE, keys=2, label=OVER_SLOPE),
)
MEASURES: Mapping[str, Measure] = {one.name: one for one in EVERY}
