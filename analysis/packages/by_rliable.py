"""IQM, median, mean and optimality gap with intervals by rliable (arXiv:2108.13264)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.packages.beside import Beside, require
from rlhf_lab_analysis.statistics.aggregates import MEASURES, aggregates
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.words import label

REPETITIONS = 2000
# Their functions, by our names.
THEIRS = {
    "iqm": "aggregate_iqm",
    "median": "aggregate_median",
    "mean": "aggregate_mean",
    "optimality_gap": "aggregate_optimality_gap",
}
Scores = Mapping[str, Floats]


def by_rliable(selection: Selection, metric: str, folder: Path | None) -> list[Beside]:
    """Of each sweep, the aggregates of a metric of the last version over environments and seeds.

    folder: where rliable draws them; None for no drawings. Raises UserError if rliable is not
    installed, or no sweep has two conditions with two seeds.
    """
    require("rliable")
    found = []
    for sweep in sorted({cell.sweep for cell in selection.cells}):
        scores = scores_of(selection.only(sweep=sweep).cells, metric)
        if len(scores) > 1:
            found.append(aggregates_of(sweep, scores, metric, folder))
    if not found:
        raise UserError(
            "--with rliable: no sweep has two conditions with two seeds in all of its "
            f"environments and {metric}"
        )
    return found


def scores_of(cells: Sequence[Cell], metric: str) -> dict[str, Floats]:
    """By condition (seeds, environments): the seeds that all environments have. A condition that
    lacks an environment, the metric or a second seed is left out."""
    envs = sorted({cell.env for cell in cells})
    found: dict[str, Floats] = {}
    for condition in dict.fromkeys(cell.condition for cell in cells):
        by_env = {
            cell.env: cell.scores(metric)
            for cell in cells
            if cell.condition == condition and has(cell, metric)
        }
        seeds = sorted(set.intersection(*map(set, by_env.values()))) if by_env else []
        if len(by_env) == len(envs) and len(seeds) > 1:
            found[condition] = np.array([[by_env[env][seed] for env in envs] for seed in seeds])
    return found


def has(cell: Cell, metric: str) -> bool:
    return all(metric in rows and rows[metric].notna().all() for rows in cell.rows.values())


def aggregates_of(sweep: str, scores: Scores, metric: str, folder: Path | None) -> Beside:
    """rliable's estimates and ours by the percentile bootstrap, which is its default."""
    name = f"rliable_{sweep or 'runs'}"
    with quietly_seeded():
        from rliable import library, metrics

        def four(scores_ST: Floats) -> Floats:
            return np.array([getattr(metrics, function)(scores_ST) for function in THEIRS.values()])

        points, ends = library.get_interval_estimates(dict(scores), four, reps=REPETITIONS)
        drawn = draw(points, ends, metric, folder / f"{name}.png") if folder else ()
    options = Options(method=Method.percentile, repetitions=REPETITIONS)
    ours = aggregates(scores, options, {measure: MEASURES[measure] for measure in THEIRS})
    rows = [
        {
            "condition": condition,
            "aggregate": measure,
            "rliable": float(points[condition][place]),
            "rliable_low": float(ends[condition][0, place]),
            "rliable_high": float(ends[condition][1, place]),
            "ours": ours[condition][measure].point,
            "ours_low": ours[condition][measure].low,
            "ours_high": ours[condition][measure].high,
        }
        for condition in scores
        for place, measure in enumerate(THEIRS)
    ]
    note = (
        f"{label(metric)} of the last version; 95% stratified percentile bootstrap, "
        f"{REPETITIONS} repetitions each"
    )
    return Beside(name, f"{sweep or 'runs'} by rliable", note, pd.DataFrame(rows), drawn)


def draw(points: Any, ends: Any, metric: str, path: Path) -> tuple[Path, ...]:
    """rliable's own plot of interval estimates."""
    from matplotlib import pyplot
    from rliable import plot_utils

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, _ = plot_utils.plot_interval_estimates(
        points, ends, metric_names=list(THEIRS), xlabel=label(metric)
    )
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return (path,)


@contextmanager
def quietly_seeded() -> Iterator[None]:
    """rliable 1.2 draws from NumPy's global generator, whatever `random_state` it is given, and
    its dependencies warn of their own Pythons."""
    before = np.random.get_state()
    np.random.seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(before)
