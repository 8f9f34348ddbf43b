"""What claims measure: a number of each seed, of two conditions or of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rlhf_lab_analysis.comparison.equal_kl import Plane, at_equal_kl
from rlhf_lab_analysis.comparison.questions.answers import Criteria, Unit, minus
from rlhf_lab_analysis.comparison.questions.asynchrony import WALL, log_ratio
from rlhf_lab_analysis.comparison.questions.equal_cost import at
from rlhf_lab_analysis.comparison.questions.off_policyness import on_average
from rlhf_lab_analysis.comparison.selection import Cell
from rlhf_lab_analysis.statistics.curves import common_range

Effects: TypeAlias = dict[int, float]
QUARTER = 4


@dataclass(frozen=True)
class Measure:
    """of_pair: what the first condition has more than the second, by seed. of_one: the number of a
    condition itself, if it has one. unit: of both; times are logarithms. margin: the largest
    difference that does not matter, unless the claim has its own. label: what the number is, where
    that is not the change."""

    name: str
    unit: Unit
    margin: float
    of_pair: Callable[[Cell, Cell, Criteria], Effects]
    of_one: Callable[[Cell, Criteria], Effects] | None = None
    label: str = ""


def difference_of(of_one: Callable[[Cell, Criteria], Effects]) -> Callable[..., Effects]:
    """What the first condition has more of a number that each has by itself."""
    return lambda after, before, criteria: minus(of_one(after, criteria), of_one(before, criteria))


def quality(cell: Cell, criteria: Criteria) -> Effects:
    return cell.scores(criteria.quality)


def kl(cell: Cell, criteria: Criteria) -> Effects:
    return cell.scores(criteria.drift)


def gain(cell: Cell, criteria: Criteria) -> Effects:
    """The last version's quality less that of version 0, which is SFT, on the same prompts."""
    return minus(cell.ways_end(criteria.quality), cell.starts(criteria.quality))


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
    """Mean distance of the frontiers over the KL that both runs were evaluated around."""
    found = at_equal_kl(after, before, Plane(criteria.quality, criteria.drift))
    return {seed: one.distance for seed, one in found.items()}


def wall_clock(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """log(after / before) of the whole run's wall-clock."""
    return log_ratio(after, before)


def over_overlap(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """log of the speed-up of `after` less log of (g + t) / max(g, t) of the seconds of `before`,
    where g is what taking samples takes (generating and scoring)."""
    take, whole = before.last_recorded("seconds/take"), before.last_recorded("seconds/wall")
    speed_ups = log_ratio(before, after)
    return {
        seed: value - math.log(whole[seed] / max(take[seed], whole[seed] - take[seed]))
        for seed, value in speed_ups.items()
        if seed in take and seed in whole
    }


def equal_wall_clock(after: Cell, before: Cell, criteria: Criteria) -> Effects:
    """Quality of both at the wall-clock at which the quicker run of a seed ended."""
    curves = [cell.curves(WALL, criteria.quality) for cell in (after, before)]
    found = {}
    for seed in sorted(set(curves[0]) & set(curves[1])):
        pair = [one[seed] for one in curves]
        spent = common_range(pair)[1]
        heights = [at({seed: curve}, spent)[seed] for curve in pair]
        found[seed] = heights[0] - heights[1]
    return found


MEASURES: Mapping[str, Measure] = {
    one.name: one
    for one in (
        Measure("quality", Unit.points, 0.02, difference_of(quality), quality),
        Measure("gain_over_sft", Unit.points, 0.02, difference_of(gain), gain, "gain over SFT"),
        Measure("quality_over_updates", Unit.points, 0.02, over_updates),
        Measure(
            "quality_after_a_quarter",
            Unit.points,
            0.02,
            difference_of(after_a_quarter),
            after_a_quarter,
        ),
        Measure("quality_at_equal_kl", Unit.points, 0.02, equal_kl),
        Measure("quality_at_equal_wall_clock", Unit.points, 0.02, equal_wall_clock),
        Measure("kl", Unit.nats, 0.1, difference_of(kl), kl),
        Measure("wall_clock", Unit.times, 0.05, wall_clock),
        Measure(
            "speed_up_over_overlap",
            Unit.times,
            0.1,
            over_overlap,
            label="speed-up / ((g + t) / max(g, t))",
        ),
    )
}
