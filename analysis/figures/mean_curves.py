"""Compute means of a condition over its seeds at each evaluated version, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.ranges import listed
from rlhf_lab_analysis.statistics.aggregates import aggregate_curves
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.words import is_share

NO_INTERVAL = "none of one seed"
STUDENT = Options(method=Method.t)
# Of shares that are counted over few runs, of which most are 0 or 1.
COUNTS = Options(method=Method.percentile)
# Mean and the ends of its interval at each version, each (V,).
Ends: TypeAlias = tuple[Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """x and y at the versions that all seeds were evaluated at. Ends are NaN of one seed."""

    seeds: tuple[int, ...]
    versions: tuple[int, ...]
    x: Ends
    y: Ends
    interval: str
    warnings: tuple[str, ...]

    def point(self, index: int) -> tuple[float, float, float]:
        """y and the ends of its interval at one version."""
        y, low, high = (float(values[index]) for values in self.y)
        return y, low, high


def options_for(metric: str, values: Iterable[float] = ()) -> Options:
    """t, which of all intervals of a mean comes nearest to its level at any number of seeds
    (docs/statistics.md, coverage); of shares on log odds, so that it stays within 0 to 1."""
    return STUDENT.for_shares(values) if is_share(metric) else STUDENT


def values_at(
    cell: Cell, columns: Sequence[str], at_end: bool = False
) -> dict[int, dict[int, tuple[float, ...]]]:
    """By seed and version the columns, where all of them are finite numbers. at_end: the last
    version by its evaluation on more prompts, for which earlier ones are no way."""
    by_seed: dict[int, dict[int, tuple[float, ...]]] = {}
    for seed in cell.seeds:
        rows = cell.at_the_end(seed) if at_end else cell.rows[seed]
        has_all = all(name in rows for name in columns)
        table = rows[["version", *columns]] if has_all else rows[:0]
        by_seed[seed] = {
            int(version): tuple(map(float, values))
            for version, *values in table.itertuples(index=False)
            if all(map(math.isfinite, values))
        }
    return by_seed


def common(values: Mapping[int, Mapping[int, object]]) -> tuple[int, ...]:
    """The versions that every seed has."""
    return tuple(sorted(set.intersection(*map(set, values.values()))))


def is_judged(cell: Cell, columns: Sequence[str]) -> bool:
    """Whether there is a version at which all seeds have all columns."""
    return bool(common(values_at(cell, columns)))


def end_curve(cell: Cell, x: str, y: str) -> MeanCurve:
    """The same, whose last point is the one that conditions are compared by."""
    return mean_curve(cell, x, y, at_end=True)


def mean_curve(cell: Cell, x: str, y: str, at_end: bool = False) -> MeanCurve:
    """Means with intervals of both columns. A version that a seed lacks, or where it is NaN, is
    left out for all, with a warning. `is_judged`: whether any is left."""
    values = values_at(cell, (x, y), at_end)
    versions = common(values)
    everything = {int(v) for seed in cell.seeds for v in cell.rows[seed]["version"]}
    warnings = []
    if missing := sorted(everything - set(versions)):
        lacking = {s: [v for v in missing if v not in values[s]] for s in cell.seeds}
        who = listed(f"seed {seed} at {lost}" for seed, lost in lacking.items() if lost)
        warnings.append(f"versions without {y} over {x} left out: {who}")
    array = np.array([[values[seed][version] for version in versions] for seed in cell.seeds])
    x_ends, _, _ = bands(array[:, :, 0], x)
    y_ends, interval, more = bands(array[:, :, 1], y)
    return MeanCurve(cell.seeds, versions, x_ends, y_ends, interval, (*warnings, *more))


def bands(values_SV: Floats, metric: str) -> tuple[Ends, str, tuple[str, ...]]:
    """Mean and ends of a metric at each point, the kind of interval, and warnings of the seeds."""
    seeds, points = values_SV.shape
    if seeds == 1:
        none = np.full(points, np.nan)
        return (values_SV[0], none, none), NO_INTERVAL, ("one seed, so no interval",)
    options = options_for(metric, values_SV.flat)
    # Ends of a condition do not depend on the grid, which only numbers the versions here.
    grid = [float(index) for index in range(points)]
    band = aggregate_curves({"": {"": values_SV}}, grid, options, "mean")[""]
    ends = np.array(band.point), np.array(band.low), np.array(band.high)
    warnings = tuple(text for text in band.warnings if "without width" not in text)
    return ends, options.text, warnings
