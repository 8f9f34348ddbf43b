"""What claims measure: a number of each seed, of two conditions or of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.equal_kl import Apart, Plane, at_equal_kl, at_equal_quality
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit, minus
from rlhf_lab_analysis.comparison.stable_rates import times_of
from rlhf_lab_analysis.statistics.contrasts import seeds_to_pair
from rlhf_lab_analysis.statistics.curves import areas, common_range, curve_of, values_on_grid
from rlhf_lab_analysis.words import VIRTUAL, WALL

Effects: TypeAlias = dict[int, float]
OfPair: TypeAlias = Callable[[Cell, Cell, Criteria], Effects]
QUARTER = 4
# The exponent of staleness in the largest stable learning rate, of conditions over both.
BOUNDARY = "boundary_slope"
OVERLAP = "speed-up / ((g + t) / max(g, t))"


@dataclass(frozen=True)
class Measure:
    """of_pair: what the first condition has more than the second, by seed; None for a number of
    many conditions. of_one: the number of a condition itself, if it has one. unit: of both; times
    are logarithms. margin: the largest difference that does not matter, unless the claim has its
    own. label: what the number is, where that is not the change. words: what it is called where it
    stands beside another one."""

    name: str
    unit: Unit
    margin: float
    of_pair: OfPair | None = None
    of_one: Callable[[Cell, Criteria], Effects] | None = None
    label: str = ""
    words: str = ""

    @property
    def title(self) -> str:
        """What it is called."""
        return self.label or self.words or self.name


def difference_of(of_one: Callable[[Cell, Criteria], Effects]) -> OfPair:
    """What the first condition has more of a number that each has by itself."""
    return lambda after, before, criteria: minus(of_one(after, criteria), of_one(before, criteria))


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


def equal_kl(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Mean distance of the frontiers over the KL that both runs were evaluated around.

    Nothing unless every common seed has KL in common: to leave one out would be to choose seeds by
    what happened in them. A run that is lost leaves its seed out, here as in all pairs.
    """
    return of_all(at_equal_kl, after, before, criteria)


def equal_quality(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Mean difference of the least KL at which each run has a quality, over the quality that both
    reach. Nothing unless every common seed has some in common, as in `equal_kl`."""
    return of_all(at_equal_quality, after, before, criteria)


def of_all(
    compare: Callable[[Cell, Cell, Plane], dict[int, Apart]],
    after: Cell,
    before: Cell,
    criteria: Criteria,
) -> Effects:
    found = compare(after, before, Plane(criteria.quality, criteria.drift))
    if set(found) != set(seeds_to_pair(after.seeds, before.seeds)):
        return {}
    return {seed: one.distance for seed, one in found.items()}


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


def clock(axis: str) -> OfPair:
    """log(after / before) of the whole run's seconds of a clock."""
    return lambda after, before, criteria: log_ratio(after, before, axis)


def saved(axis: str) -> OfPair:
    """log(before / after): how many times less of an axis the whole run took."""
    return lambda after, before, criteria: log_ratio(before, after, axis)


def over_overlap(axis: str, whole: str, generating: str) -> OfPair:
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


def at_equal(axis: str) -> OfPair:
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


MEASURES: Mapping[str, Measure] = {
    one.name: one
    for one in (
        Measure("quality", Unit.points, 0.02, difference_of(quality), quality, words="win-rate"),
        Measure("accuracy", Unit.points, 0.02, difference_of(accuracy), accuracy, words="accuracy"),
        Measure("gain_over_sft", Unit.points, 0.02, difference_of(gain), gain, "gain over SFT"),
        Measure(
            "quality_over_updates",
            Unit.points,
            0.02,
            over_updates,
            words="mean over the updates",
        ),
        Measure(
            "quality_after_a_quarter",
            Unit.points,
            0.02,
            difference_of(after_a_quarter),
            after_a_quarter,
        ),
        Measure("quality_at_equal_kl", Unit.points, 0.02, equal_kl),
        Measure("kl_at_equal_quality", Unit.nats, 0.1, equal_quality, label="at equal win-rate"),
        Measure("quality_at_equal_wall_clock", Unit.points, 0.02, at_equal(WALL)),
        Measure("quality_at_equal_virtual_wall_clock", Unit.points, 0.02, at_equal(VIRTUAL)),
        Measure(
            "quality_at_equal_device_hours",
            Unit.points,
            0.02,
            at_equal("x/device_hours"),
            label="at equal device-hours",
        ),
        Measure(
            "quality_at_equal_flops", Unit.points, 0.02, at_equal("x/flops"), label="at equal FLOPs"
        ),
        Measure("kl", Unit.nats, 0.1, difference_of(kl), kl, words="KL to SFT"),
        Measure(
            "updates_before_collapse",
            Unit.updates,
            4.0,
            difference_of(updates_before_collapse),
            updates_before_collapse,
        ),
        Measure(BOUNDARY, Unit.exponent, 0.25),
        Measure("wall_clock", Unit.times, 0.05, clock(WALL)),
        Measure("virtual_wall_clock", Unit.times, 0.05, clock(VIRTUAL)),
        Measure(
            "completions_saved", Unit.times, 0.05, saved("x/completions"), label="completions saved"
        ),
        Measure("flops_saved", Unit.times, 0.05, saved("x/flops"), label="FLOPs saved"),
        Measure(
            "speed_up_over_overlap",
            Unit.times,
            0.1,
            over_overlap(WALL, "seconds/wall", "seconds/take"),
            label=OVERLAP,
        ),
        Measure(
            "virtual_speed_up_over_overlap",
            Unit.times,
            0.1,
            over_overlap(VIRTUAL, "virtual_seconds/wall", "virtual_seconds/wait"),
            label=OVERLAP,
        ),
    )
}
