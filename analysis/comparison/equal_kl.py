"""Compare two conditions seed by seed, by the best quality of each run at a KL: at equal KL, or by
the least KL at equal quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.statistics.curves import RunCurve, areas, frontier_of


@dataclass(frozen=True)
class Plane:
    """Columns of versions: what is gained, and the KL that it takes (nats)."""

    quality: str
    drift: str


@dataclass(frozen=True)
class Apart:
    """By how much one run's frontier is above another's, on average over what both have in common,
    which goes from `low` to `high`."""

    distance: float
    low: float
    high: float

    @property
    def span(self) -> float:
        return self.high - self.low


def at_equal_kl(first: Cell, second: Cell, plane: Plane) -> dict[int, Apart]:
    """The mean distance of the frontiers of each seed, for seeds whose runs have KL in common.

    Seeds have proxies of their own, which let policies go far or not, so each has its own range.
    """
    return apart(frontiers(first, plane), frontiers(second, plane))


def at_equal_quality(first: Cell, second: Cell, plane: Plane) -> dict[int, Apart]:
    """The mean difference (nats) of the least KL at which the runs of each seed have a quality or a
    better one, for seeds whose runs have some quality in common."""
    found = apart(mirrored(frontiers(first, plane)), mirrored(frontiers(second, plane)))
    return {seed: Apart(-one.distance, -one.high, -one.low) for seed, one in found.items()}


def mirrored(curves: Mapping[int, RunCurve]) -> dict[int, RunCurve]:
    """-KL over -quality: the least KL at each quality or above is the highest -KL at each -quality
    or below, which is a frontier again."""
    return {
        seed: frontier_of(f"seed {seed}", -curve.y_P, -curve.x_P) for seed, curve in curves.items()
    }


def apart(ours: Mapping[int, RunCurve], theirs: Mapping[int, RunCurve]) -> dict[int, Apart]:
    """The mean distance of two curves of each seed over the range that both have."""
    found = {}
    for seed in sorted(set(ours) & set(theirs)):
        pair = [ours[seed], theirs[seed]]
        low, high = max(one.begin for one in pair), min(one.end for one in pair)
        if low < high:
            heights, _ = areas(pair, (low, high))
            found[seed] = Apart(float(heights[0] - heights[1]), low, high)
    return found


def frontiers(cell: Cell, plane: Plane) -> dict[int, RunCurve]:
    """The best quality at each KL, by seed. Version 0 is left out: between it and the first one
    that was evaluated lies most of the way, and a straight line would be no measurement. A run
    that was evaluated at version 0 alone has none.

    Raises UserError for a column that is not there, or NaN.
    """
    return {
        seed: frontier_of(f"{cell.condition}, seed {seed}", kl[1:], quality[1:])
        for seed, (kl, quality) in cell.paths(plane.drift, plane.quality).items()
        if len(kl) > 1
    }
