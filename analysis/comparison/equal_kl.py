"""Compare two conditions seed by seed, by the best quality of each run at a KL: at equal KL, or by
the least KL at equal quality."""

from __future__ import annotations

from collections.abc import Mapping

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.statistics.curves import RunCurve, areas, frontier_of


def at_equal_kl(first: Cell, second: Cell, quality: str, drift: str) -> dict[int, float]:
    """By how much the frontier of the first is above that of the second, on average over the KL
    that both runs of a seed have in common, for seeds that have some.

    Seeds have proxies of their own, which let policies go far or not, so each has its own range.
    quality, drift: columns of versions; the KL is in nats. Raises UserError for one that is not
    there, or NaN.
    """
    return apart(*(frontiers(one, quality, drift) for one in (first, second)))


def at_equal_quality(first: Cell, second: Cell, quality: str, drift: str) -> dict[int, float]:
    """The mean difference (nats) of the least KL at which the runs of each seed have a quality or a
    better one, for seeds whose runs have some quality in common."""
    ours, theirs = (mirrored(frontiers(one, quality, drift)) for one in (first, second))
    return {seed: -distance for seed, distance in apart(ours, theirs).items()}


def mirrored(curves: Mapping[int, RunCurve]) -> dict[int, RunCurve]:
    """-KL over -quality: the least KL at each quality or above is the highest -KL at each -quality
    or below, which is a frontier again."""
    return {
        seed: frontier_of(f"seed {seed}", -curve.y_P, -curve.x_P) for seed, curve in curves.items()
    }


def apart(ours: Mapping[int, RunCurve], theirs: Mapping[int, RunCurve]) -> dict[int, float]:
    """The mean distance of two curves of each seed over the range that both have."""
    found = {}
    for seed in sorted(set(ours) & set(theirs)):
        pair = [ours[seed], theirs[seed]]
        low, high = max(one.begin for one in pair), min(one.end for one in pair)
        if low < high:
            heights, _ = areas(pair, (low, high))
            found[seed] = float(heights[0] - heights[1])
    return found


def frontiers(cell: Cell, quality: str, drift: str) -> dict[int, RunCurve]:
    """The best quality at each KL, by seed. Version 0 is left out: between it and the first one
    that was evaluated lies most of the way, and a straight line would be no measurement. A run
    that was evaluated at version 0 alone has none."""
    return {
        seed: frontier_of(f"{cell.condition}, seed {seed}", kl[1:], heights[1:])
        for seed, (kl, heights) in cell.paths(drift, quality).items()
        if len(kl) > 1
    }
