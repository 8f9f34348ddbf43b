"""What each condition came to, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.report.groups import Group, last
from analysis.report.markup import Child, Markup, element, joined
from analysis.report.numbers import NONE, interval_text, listed, text_of
from analysis.report.series import Chosen
from analysis.statistics.aggregates import aggregates, mean
from analysis.statistics.results import Estimate, Method, Options
from analysis.words import is_share, label

OPTIONS = Options(method=Method.t)
COLUMNS = 5
COSTS = ("x/updates", "x/wall_seconds", "x/device_hours", "x/step")


def estimate_of(scores: Mapping[int, float], metric: str = "") -> Estimate | float:
    """The mean over seeds with its t interval, of shares on log odds; without one where there is a
    single seed, and NaN where there is none. Seeds without the number are left out, which the page
    says."""
    known = [value for value in scores.values() if math.isfinite(value)]
    if len(known) < 2:
        return known[0] if known else math.nan
    options = OPTIONS.for_shares(known) if is_share(metric) else OPTIONS
    made = aggregates({"mean": np.array(known)[:, None]}, options, {"mean": mean})
    return made["mean"]["mean"]


def results_table(groups: Sequence[Group], chosen: Chosen) -> Markup:
    """A table of the groups of one environment: means of the last judged version, and the cost."""
    metrics = (chosen.versions or chosen.rounds)[:COLUMNS]
    costs = [axis for axis in COSTS if axis in chosen.axes]
    heads = ["condition", "seeds", *map(label, (*metrics, *costs))]
    rows = [result_row(group, metrics, costs) for group in groups]
    return sortable(f"Results: {groups[0].env}", heads, rows)


def result_row(group: Group, metrics: Sequence[str], costs: Sequence[str]) -> Markup:
    seeds = element("td", f"{len(group.seeds)} ({listed(group.seeds)})", class_="text")
    name = element("th", group.title, scope="row", title=group.condition)
    cells = [number_cell(ends(group, metric), metric) for metric in metrics]
    spent = [number_cell(ends(group, axis), bare=True) for axis in costs]
    return element("tr", name, seeds, *cells, *spent)


def ends(group: Group, column: str) -> dict[int, float]:
    """The last number of each run: of its last judged version, of its last round without one."""
    judged = any(len(run.versions) for run in group.runs)
    frames = {run.seed: run.versions if judged else run.rounds for run in group.runs}
    return {seed: last(frame, column) for seed, frame in frames.items()}


def number_cell(scores: Mapping[int, float], metric: str = "", bare: bool = False) -> Markup:
    """A number of a condition; what is missing of it is told. bare: the mean alone."""
    found = estimate_of(scores, metric)
    point = found.point if isinstance(found, Estimate) else found
    lacking = [seed for seed, value in scores.items() if not math.isfinite(value)]
    missing = f"no number of seed {listed(lacking)}" if lacking else None
    sorts_by = repr(point) if math.isfinite(point) else ""
    if math.isnan(point):
        return element("td", NONE, class_="number", data_value="", title=missing)
    if isinstance(found, float) or bare:
        note: list[Child] = [] if bare else [element("small", " one seed")]
        shown = [text_of(point), *note]
    else:
        interval = interval_text(found).removeprefix(text_of(point))
        shown = [text_of(point), element("small", interval)]
    mark = [element("sup", "*")] if lacking else []
    return element("td", *shown, *mark, class_="number", data_value=sorts_by, title=missing)


def sortable(caption: str, heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    """A table whose heads sort it, in a box of its own that scrolls sideways."""
    cells = [
        element("th", element("button", head, type="button"), scope="col", aria_sort="none")
        for head in heads
    ]
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *cells)),
        element("tbody", joined(rows)),
        class_="sortable",
    )
    return element("div", table, class_="wide", tabindex="0", role="region", aria_label=caption)
