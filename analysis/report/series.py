"""Make the data of the page's curves: each run's numbers at fewer points, with their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy import stats

from rlhf_lab_analysis.comparison.selection import Cell, unlabelled
from rlhf_lab_analysis.report.colours import PageStyle
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.sources.axes import STEP
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import COMPLETIONS, DEVICE_HOURS, FLOPS, KL, UPDATES, WALL, label

LEVEL = 0.95
# Of the numbers in the page's data.
DIGITS = 6
# At most so many points of a run, and so many numbers in all, about seven characters each.
POINTS, NUMBERS, FEWEST = 300, 400_000, 20
MEASURED_AXIS = KL
AXES = (UPDATES, WALL, DEVICE_HOURS, FLOPS, "x/generated_tokens", COMPLETIONS, STEP, KL)
FIRST_VERSIONS = (
    *("gold/win_rate", MEASURED_AXIS, "gold/mean", "proxy/mean", "ppl/sft_response"),
    *("accuracy/mean", "gap/proxy_gold", "proxy/win_rate", "ppl/sft_paper", "sample/length"),
)
FIRST_ROUNDS = (
    *("reward/mean", "kl/policy_reference_k1", "lag/updates_mean", "ratio/ess", "ratio/clipped"),
    *("update/entropy", "update/grad_norm", "sample/length"),
)
MOST = {"versions": 10, "rounds": 8}
# Numbers of the measuring or of an interval, by which no run is better than another.
ASIDE = ("by_lag/", "x/", "eval/", "timing/", "total/", "lag/updates_histogram", "lag/rounds_hist")
ENDS = ("_low", "_high")
KEYS = frozenset(("seed", "version", "updates_per_round", "passes", "group_size", "max_staleness"))


@dataclass(frozen=True)
class Chosen:
    """Columns that the page has curves of, by table, the first of them shown first."""

    versions: tuple[str, ...]
    rounds: tuple[str, ...]
    axes: tuple[str, ...]


def choose(tables: Tables, metric: str) -> Chosen:
    """The metrics and axes that these runs have; the chosen metric comes first."""
    judged, recorded = numeric_columns(unlabelled(tables.versions)), numeric_columns(tables.points)
    known = judged | recorded
    axes = [axis for axis in AXES if axis in (judged if axis == KL else known)]
    if UPDATES in axes and STEP in axes:
        axes.remove(STEP)
    return Chosen(
        order_metrics(judged, (metric, *FIRST_VERSIONS), MOST["versions"]),
        order_metrics(recorded, (metric, *FIRST_ROUNDS), MOST["rounds"]),
        tuple(axes),
    )


def numeric_columns(frame: pd.DataFrame) -> set[str]:
    """Names of the columns that hold a number, keys left out."""
    numbers = frame.select_dtypes("number").dropna(axis="columns", how="all")
    return set(map(str, numbers.columns)) - KEYS


def is_metric(name: str) -> bool:
    """Whether a column describes the policy, not the measuring or an interval."""
    return not name.startswith(ASIDE) and not name.endswith(ENDS)


def order_metrics(names: set[str], first: Sequence[str], most: int) -> tuple[str, ...]:
    """The metrics among the names, those that are wanted first before others."""
    wanted = [name for name in dict.fromkeys(first) if name in names]
    others = sorted(name for name in names - set(wanted) if is_metric(name))
    return tuple([*wanted, *others][:most])


def curve_data(
    groups: Sequence[Group], styles: Sequence[PageStyle], chosen: Chosen
) -> dict[str, Any]:
    """The numbers of all curves, for the page's script."""
    points = points_a_run(groups, chosen)
    envs = list(dict.fromkeys(group.cell.env for group in groups))
    sizes = {len(group.cell.seeds) for group in groups if len(group.cell.seeds) > 1}
    return {
        "level": LEVEL,
        "t": {str(n): short(stats.t.ppf((1 + LEVEL) / 2, n - 1)) for n in range(2, max(sizes) + 1)}
        if sizes
        else {},
        "axes": [{"id": a, "label": label(a), "measured": a == MEASURED_AXIS} for a in chosen.axes],
        "metrics": [
            *metric_entries(chosen.versions, "versions"),
            *metric_entries(chosen.rounds, "rounds"),
        ],
        "envs": envs,
        "groups": [
            {
                **{"env": envs.index(group.cell.env), "title": group.title},
                **{"sweep": group.cell.sweep, "condition": group.cell.condition},
                "colour": style.colour,
                **{"dash": style.dash, "marker": style.marker},
                "runs": [run_data(group.cell, seed, chosen, points) for seed in group.cell.seeds],
            }
            for group, style in zip(groups, styles, strict=True)
        ],
    }


def metric_entries(metrics: Sequence[str], of: str) -> list[dict[str, str]]:
    """Metrics as the page's script knows them; of: the table that they are of."""
    return [{"id": name, "label": label(name), "of": of} for name in metrics]


def points_a_run(groups: Sequence[Group], chosen: Chosen) -> int:
    """How many points of a run the page has room for."""
    runs = sum(len(group.cell.seeds) for group in groups)
    columns = len(chosen.versions) + len(chosen.rounds) + 2 * len(chosen.axes)
    return max(FEWEST, min(POINTS, NUMBERS // max(1, runs * columns)))


def run_data(cell: Cell, seed: int, chosen: Chosen, points: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "versions": columns_of(cell.rows[seed], (*chosen.axes, *chosen.versions), points),
        "rounds": columns_of(cell.recorded[seed], (*chosen.axes, *chosen.rounds), points),
    }


def columns_of(frame: pd.DataFrame, names: Sequence[str], points: int) -> dict[str, list[Any]]:
    shown = even_indices(len(frame), points)
    return {
        name: [short(value) for value in frame[name].iloc[shown]]
        for name in dict.fromkeys(names)
        if name in frame and frame[name].notna().any()
    }


def thinning(groups: Sequence[Group], chosen: Chosen) -> str:
    """A note on curves that have fewer points than were measured; "" if none has."""
    points = points_a_run(groups, chosen)
    frames = [
        frame for g in groups for of in (g.cell.rows, g.cell.recorded) for frame in of.values()
    ]
    longest = max(map(len, frames), default=0)
    if longest <= points:
        return ""
    return (
        f"Curves are thinned to {points} points a run, evenly, with the first and the last (the "
        f"longest run recorded {longest}); tables and verdicts are of all."
    )


def short(value: Any) -> float | int | None:
    """A number with the digits that a curve needs; None for NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def even_indices(length: int, most: int) -> list[int]:
    """At most so many of the indices 0..length-1, evenly spread, with the first and the last."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})
