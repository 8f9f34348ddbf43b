"""What claims measure: a number of each seed, of two conditions or of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.equal_kl import at_equal_kl, at_equal_quality
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.stable_rates import slope_estimate, times_of, trials_of
from rlhf_lab_analysis.statistics.contrasts import seeds_to_pair
from rlhf_lab_analysis.statistics.curves import areas, common_range, curve_of, values_on_grid
from rlhf_lab_analysis.statistics.results import Estimate, Options
from rlhf_lab_analysis.words import COMPLETIONS, DEVICE_HOURS, FLOPS, GOLD, UPDATES, VIRTUAL, WALL

Effects: TypeAlias = dict[int, float]
OfOne: TypeAlias = Callable[[Cell, Criteria], Effects]
# What frontiers of quality over KL are compared by.
Frontiers: TypeAlias = Callable[[Cell, Cell, str, str], Effects]
OfTwo: TypeAlias = Callable[[Cell, Cell, Criteria], Effects]
# Conditions by the levels of the settings that they differ in.
Levels: TypeAlias = Mapping[tuple[Any, ...], Cell]
# The number with its interval at a level, where it is no mean of the effects.
Fit: TypeAlias = Callable[[Options], Estimate]
OfMany: TypeAlias = Callable[[Levels, Criteria], tuple[Effects, Fit | None]]
QUARTER = 4
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


def gain(cell: Cell, criteria: Criteria) -> Effects:
    """The last version's quality less that of version 0, which is SFT, on the same prompts."""
    paths = cell.paths(UPDATES, criteria.quality)
    return {seed: ys[-1] - ys[0] for seed, (_, ys) in paths.items()}


def on_average(cell: Cell, other: Cell, criteria: Criteria) -> Effects:
    """The area under a run's curve over updates, divided by their number, from versions of as many
    updates as the other has some: a finer curve would be another measure. A run with fewer than
    two of these is left out."""
    theirs = {x for xs, _ in other.paths(UPDATES, criteria.quality).values() for x in xs}
    found = {}
    for seed, (xs, ys) in cell.paths(UPDATES, criteria.quality).items():
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
    paths = cell.paths(UPDATES, criteria.quality)
    return {
        seed: ys[xs.index(xs[-1] / QUARTER)]
        for seed, (xs, ys) in paths.items()
        if xs[-1] / QUARTER in xs
    }


def of_all(compare: Frontiers, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Mean distance of the frontiers over what both runs have in common: the KL that they were
    evaluated around, or the quality that both reach.

    Nothing unless every common seed has some in common: to leave one out would be to choose seeds
    by what happened in them. A run that is lost leaves its seed out, here as in all pairs.
    """
    found = compare(after, before, criteria.quality, criteria.drift)
    return found if set(found) == set(seeds_to_pair(after.seeds, before.seeds)) else {}


def updates_before_collapse(cell: Cell, criteria: Criteria) -> Effects:
    """Updates of each run until it collapses, or all of them: a mean up to a horizon, which is the
    end of the runs."""
    times = times_of(cell)
    return dict(zip(times.seeds, times.time_S.tolist(), strict=True)) if times else {}


def log_of(axis: str, cell: Cell, criteria: Criteria) -> Effects:
    """The logarithm of what the whole run took of an axis: differences are those of ratios."""
    return {seed: math.log(value) for seed, value in cell.at_end(axis).items()}


def log_saved(axis: str, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """log(before / after): how many times less of an axis the whole run took."""
    return minus(log_of(axis, before, criteria), log_of(axis, after, criteria))


def over_overlap(
    axis: str, whole: str, generating: str, after: Cell, before: Cell, criteria: Criteria
) -> Effects:
    """log of the speed-up of `after` less log of (g + t) / max(g, t) of the seconds of `before`,
    where g is what its trainer waits for samples. axis: of the clock; whole, generating: the
    metrics of all its seconds and of g."""
    take, every = before.last_recorded(generating), before.last_recorded(whole)
    bound = {
        seed: math.log(every[seed] / max(take[seed], every[seed] - take[seed]))
        for seed in take
        if seed in every
    }
    return minus(log_saved(axis, after, before, criteria), bound)


def at_equal(axis: str, after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Quality of both at the cost, on this axis, at which the cheaper run of a seed ended; on
    straight lines between evaluated versions."""
    curves, theirs = (cell.curves(axis, criteria.quality) for cell in (after, before))
    found = {}
    for seed in sorted(set(curves) & set(theirs)):
        pair = [curves[seed], theirs[seed]]
        spent = np.array([common_range(pair)[1]])
        first, second = (float(values_on_grid([curve], spent)[0, 0]) for curve in pair)
        found[seed] = first - second
    return found


def per_doubling(levels: Levels, criteria: Criteria) -> tuple[Effects, None]:
    """What each doubling of a setting changes of quality, by least squares on its binary
    logarithm."""
    numbers = [cell.scores(criteria.quality) for cell in levels.values()]
    x = np.log2([float(level) for (level,) in levels])
    x -= x.mean()
    seeds = sorted(set.intersection(*(set(one) for one in numbers)))
    return {seed: float(x @ [one[seed] for one in numbers] / (x @ x)) for seed in seeds}, None


def boundary_slope(than: float, levels: Levels, criteria: Criteria) -> tuple[Effects, Fit]:
    """The exponent of staleness, plus 1, in the largest stable learning rate, less a number, of
    conditions by staleness and rate. It is fitted to all seeds at once, which have no numbers."""
    fallen = {(float(age), float(rate)): times_of(cell) for (age, rate), cell in levels.items()}
    trials = trials_of(fallen)
    effects = dict.fromkeys(sorted({one.seed for one in trials}), math.nan)
    return effects, partial(slope_estimate, trials, than)


SHARE, NATS, TIMES, EXPONENT = Unit.points, Unit.nats, Unit.times, Unit.exponent
AT_KL, AT_QUALITY = partial(of_all, at_equal_kl), partial(of_all, at_equal_quality)
AT_WALL, AT_VIRTUAL = partial(at_equal, WALL), partial(at_equal, VIRTUAL)
AT_HOURS, AT_FLOPS = partial(at_equal, DEVICE_HOURS), partial(at_equal, FLOPS)
LESS_COMPLETIONS, LESS_FLOPS = partial(log_saved, COMPLETIONS), partial(log_saved, FLOPS)
REAL = partial(over_overlap, WALL, "seconds/wall", "seconds/take")
ON_CLUSTER = partial(over_overlap, VIRTUAL, "virtual_seconds/wall", "virtual_seconds/wait")
OVERLAP, SLOPE = "speed-up / ((g + t) / max(g, t))", "slope of log {1} on log({0} + 1)"
HOURS, DOUBLING = "at equal device-hours", "per doubling of {}"
BOUNDARY, OVER_INVERSE = partial(boundary_slope, 0.0), partial(boundary_slope, -1.0)
INVERSE = "boundary_slope_over_inverse"
EVERY = (
    Measure("quality", SHARE, lambda cell, by: cell.scores(by.quality)),
    # Of a rule of 0 and 1: a win-rate against the reference would count a right response only where
    # the reference is wrong.
    Measure("accuracy", SHARE, lambda cell, _: cell.scores(GOLD)),
    Measure("gain_over_sft", SHARE, gain, label="gain over SFT"),
    Measure("quality_after_a_quarter", SHARE, after_a_quarter),
    Measure("kl", NATS, lambda cell, by: cell.scores(by.drift), beside="KL to SFT"),
    Measure("updates_before_collapse", Unit.updates, updates_before_collapse),
    Measure("quality_over_updates", SHARE, of_two=over_updates, beside="mean over the updates"),
    Measure("quality_at_equal_kl", SHARE, of_two=AT_KL),
    Measure("kl_at_equal_quality", NATS, of_two=AT_QUALITY, label="at equal win-rate"),
    Measure("quality_at_equal_wall_clock", SHARE, of_two=AT_WALL),
    Measure("quality_at_equal_virtual_wall_clock", SHARE, of_two=AT_VIRTUAL),
    Measure("quality_at_equal_device_hours", SHARE, of_two=AT_HOURS, label=HOURS),
    Measure("quality_at_equal_flops", SHARE, of_two=AT_FLOPS, label="at equal FLOPs"),
    Measure("wall_clock", TIMES, partial(log_of, WALL)),
    Measure("virtual_wall_clock", TIMES, partial(log_of, VIRTUAL)),
    Measure("completions_saved", TIMES, of_two=LESS_COMPLETIONS, label="completions saved"),
    Measure("flops_saved", TIMES, of_two=LESS_FLOPS, label="FLOPs saved"),
    Measure("speed_up_over_overlap", TIMES, of_two=REAL, margin=0.1, label=OVERLAP),
    Measure("virtual_speed_up_over_overlap", TIMES, of_two=ON_CLUSTER, margin=0.1, label=OVERLAP),
    Measure("quality_per_doubling", SHARE, None, None, per_doubling, 1, 0.003, DOUBLING),
    Measure("boundary_slope", EXPONENT, None, None, BOUNDARY, 2, 0.0, SLOPE),
    Measure(INVERSE, EXPONENT, None, None, OVER_INVERSE, 2, label=f"{SLOPE}, less -1"),
)
MEASURES: Mapping[str, Measure] = {one.name: one for one in EVERY}
