"""What a condition did over training: means over seeds at each evaluated version."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.comparison.selection import Cell
from analysis.figures.names import is_share
from analysis.statistics.aggregates import aggregate_curves
from analysis.statistics.arrays import Floats
from analysis.statistics.results import Method, Options

NO_INTERVAL = "none of one seed"
STUDENT = Options(method=Method.t)


@dataclass(frozen=True, eq=False)
class Course:
    """x and y at the versions that all seeds were judged at: mean and ends, each (V,).

    The ends are NaN where there is one seed.
    """

    seeds: tuple[int, ...]
    versions: tuple[int, ...]
    x: tuple[Floats, Floats, Floats]
    y: tuple[Floats, Floats, Floats]
    interval: str
    warnings: tuple[str, ...]


def options_for(metric: str, values: Iterable[float]) -> Options:
    """t, which of all intervals of a mean comes nearest to its level at any number of seeds
    (docs/statistics.md, coverage); of shares on log odds, so that it stays within 0 to 1."""
    return STUDENT.for_shares(values) if is_share(metric) else STUDENT


def options_for_counts() -> Options:
    """For shares that are counted over few runs, of which most are 0 or 1."""
    return Options(method=Method.percentile)


def values_at(cell: Cell, columns: Sequence[str]) -> dict[int, dict[int, tuple[float, ...]]]:
    """By seed and version the columns, where all of them are finite numbers."""
    found: dict[int, dict[int, tuple[float, ...]]] = {}
    for seed in cell.seeds:
        rows = cell.rows[seed]
        held = {}
        if all(name in rows for name in columns):
            for version, *values in rows[["version", *columns]].itertuples(index=False):
                if all(math.isfinite(value) for value in values):
                    held[int(version)] = tuple(float(value) for value in values)
        found[seed] = held
    return found


def common(held: Mapping[int, Mapping[int, object]]) -> tuple[int, ...]:
    """The versions that every seed has."""
    return tuple(sorted(set.intersection(*(set(versions) for versions in held.values()))))


def is_judged(cell: Cell, columns: Sequence[str]) -> bool:
    """Whether there is a version at which all seeds have all columns."""
    return bool(common(values_at(cell, columns)))


def course(cell: Cell, x: str, y: str) -> Course:
    """Means with intervals of both columns. A version that a seed lacks, or where it is NaN, is
    left out for all, and told. `is_judged` says whether one is left."""
    held = values_at(cell, (x, y))
    versions = common(held)
    everything = {int(v) for seed in cell.seeds for v in cell.rows[seed]["version"]}
    told = []
    if missing := sorted(everything - set(versions)):
        lacking = {s: [v for v in missing if v not in held[s]] for s in cell.seeds}
        who = ", ".join(f"seed {seed} at {gone}" for seed, gone in lacking.items() if gone)
        told.append(f"versions without {y} over {x} left out: {who}")
    values = np.array([[held[seed][version] for version in versions] for seed in cell.seeds])
    made_x, _, _ = bands(values[:, :, 0], x)
    made_y, interval, warnings = bands(values[:, :, 1], y)
    return Course(cell.seeds, versions, made_x, made_y, interval, (*told, *warnings))


def bands(
    values_SV: Floats, metric: str
) -> tuple[tuple[Floats, Floats, Floats], str, tuple[str, ...]]:
    """Mean and ends of a metric at each point, the kind of interval, and warnings of the seeds."""
    seeds, points = values_SV.shape
    if seeds == 1:
        gone = np.full(points, np.nan)
        return (values_SV[0], gone, gone), NO_INTERVAL, ("one seed, so no interval",)
    options = options_for(metric, values_SV.flat)
    # Ends of a condition do not depend on the grid, which only numbers the versions here.
    grid = [float(place) for place in range(points)]
    band = aggregate_curves({"": {"": values_SV}}, grid, options, "mean")[""]
    ends = tuple(np.array(each) for each in (band.point, band.low, band.high))
    warnings = tuple(text for text in band.warnings if "without width" not in text)
    return (ends[0], ends[1], ends[2]), options.text, warnings
