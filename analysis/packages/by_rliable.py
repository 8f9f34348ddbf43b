"""IQM, median, mean and optimality gap by rliable (arXiv:2108.13264), with ours beside them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection
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


def by_rliable(selection: Selection, metric: str, folder: Path) -> list[Path]:
    """Write the aggregates of a metric of the last version over environments and seeds of each
    sweep, as rliable_SWEEP.csv and its own plot. Raises UserError if no sweep has two conditions
    with two seeds."""
    written = []
    for sweep in sorted({cell.sweep for cell in selection.cells}):
        scores = scores_of(selection.only(sweep=sweep), metric)
        if len(scores) > 1:
            path = folder / f"rliable_{sweep or 'runs'}.csv"
            write(scores, metric, path)
            written += [path, path.with_suffix(".png")]
    if not written:
        raise UserError(
            "--with rliable: no sweep has two conditions with two seeds in all of its "
            f"environments and {metric}"
        )
    return written


def scores_of(selection: Selection, metric: str) -> dict[str, Floats]:
    """By condition (seeds, environments): the seeds that all environments have. A condition that
    lacks an environment, the metric or a second seed is left out."""
    envs = sorted({cell.env for cell in selection.cells})
    by_env: dict[str, dict[str, Mapping[int, float]]] = {}
    for cell in selection.cells:
        if cell.has(metric):
            by_env.setdefault(cell.condition, {})[cell.env] = cell.scores(metric)
    found = {}
    for condition, own in by_env.items():
        seeds = sorted(set.intersection(*map(set, own.values())))
        if len(own) == len(envs) and len(seeds) > 1:
            found[condition] = np.array([[own[env][seed] for env in envs] for seed in seeds])
    return found


def write(scores: Mapping[str, Floats], metric: str, path: Path) -> None:
    """rliable's estimates and ours by the percentile bootstrap, which is its default."""
    options = Options(method=Method.percentile, repetitions=REPETITIONS)
    ours = aggregates(scores, options, {measure: MEASURES[measure] for measure in THEIRS})
    path.parent.mkdir(parents=True, exist_ok=True)
    with quietly_seeded():
        from rliable import library, metrics, plot_utils

        points, ends = library.get_interval_estimates(
            dict(scores),
            lambda own: np.array([getattr(metrics, name)(own) for name in THEIRS.values()]),
            reps=REPETITIONS,
        )
        figure, _ = plot_utils.plot_interval_estimates(
            points, ends, metric_names=list(THEIRS), xlabel=label(metric)
        )
        figure.savefig(path.with_suffix(".png"), bbox_inches="tight", metadata={"Software": None})
    rows = [
        {
            "condition": condition,
            "aggregate": measure,
            "rliable": points[condition][place],
            "rliable_low": ends[condition][0, place],
            "rliable_high": ends[condition][1, place],
            "ours": ours[condition][measure].point,
            "ours_low": ours[condition][measure].low,
            "ours_high": ours[condition][measure].high,
        }
        for condition in scores
        for place, measure in enumerate(THEIRS)
    ]
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")


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
