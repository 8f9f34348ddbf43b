"""Figures for any comparison by name, and what they need."""

from __future__ import annotations

from analysis.figures import bands, frontier, fronts, grouping, levels
from analysis.figures.entry import Entry, Wants
from analysis.figures.names import DEVICE_HOURS, FLOPS, KL, UPDATES, WALL, WIN_RATE

# An interval needs two seeds at least.
SEEDS = 2


def any_two(*metrics: str, grouping: grouping.Grouping = grouping.by_algo) -> Wants:
    """Any two conditions with these metrics."""
    return Wants((), (), metrics, grouping=grouping, seeds=SEEDS)


OF_LIBRARY = (
    Entry(
        "aggregates",
        "median, IQM, mean and optimality gap of the win-rate over environments and seeds",
        (),
        any_two(WIN_RATE, grouping=grouping.by_sweep),
        levels.aggregate_bars,
    ),
    Entry(
        "improvement",
        "probability that a run beats one of the freshest condition",
        (),
        any_two(WIN_RATE),
        levels.improvement,
    ),
    Entry(
        "differences",
        "win-rate less that of the freshest condition, in pairs of seeds, against a margin",
        (),
        any_two(WIN_RATE),
        levels.differences,
    ),
    Entry(
        "profile",
        "share of runs that end above each win-rate",
        (),
        any_two(WIN_RATE),
        bands.profile,
    ),
    Entry(
        "frontier",
        "best win-rate at each KL, and the distance at equal KL",
        (),
        any_two(WIN_RATE, KL),
        frontier.frontier,
    ),
    Entry(
        "pareto",
        "win-rate against wall-clock, device-hours and FLOPs: who is on the front, how surely",
        (),
        any_two(WIN_RATE, WALL, DEVICE_HOURS, FLOPS, grouping=grouping.by_env),
        fronts.pareto,
    ),
    Entry(
        "targets",
        "share of runs that have reached a win-rate, over wall-clock and updates",
        (),
        any_two(WIN_RATE, WALL, UPDATES),
        fronts.targets,
    ),
)
