"""Each condition beside its baseline, seed by seed, with what that shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.selection import Selection
from analysis.statistics.contrasts import Contrast, apart, difference, in_pairs
from analysis.statistics.equivalence import equivalence, tails_of
from analysis.statistics.multiple import holm
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.baseline import Pair, pairs
from analysis.written.basis import each_once, interval_told, left_out_told, runs_told
from analysis.written.entries import Entry, Measured, Written, measured
from analysis.written.estimates import lacks
from analysis.written.metrics import Metric, metrics_of
from analysis.written.naming import key, place_columns, place_of, titles


@dataclass(frozen=True, eq=False)
class Difference:
    """A condition less its baseline: two-sided p by t, and the verdict of the margin."""

    pair: Pair
    value: Measured
    seeds: str
    p: float
    verdict: str
    warnings: tuple[str, ...]


def differences(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """A table for each metric. p-values are Holm's over all comparisons of a table."""
    found, told = pairs(selection, asked.baseline)
    cells = [cell for one in found for cell in (one.cell, one.baseline)]
    made = [table_of(metric, found, asked) for metric in metrics_of(cells, asked.metrics)]
    rest = (*told, *left_out_told(selection))
    return [
        Written(one.name, one.caption, one.columns, one.rows, each_once((*one.warnings, *rest)))
        for one in made
        if one is not None
    ]


def table_of(metric: Metric, found: Sequence[Pair], asked: Asked) -> Written | None:
    """The differences of one metric; None if no two conditions can be compared."""
    margin = asked.margin_of(metric.column, metric.is_share)
    compared, warned = [], []
    for pair in found:
        if reason := not_compared(pair, metric):
            warned.append(reason)
        else:
            compared.append(one_difference(pair, metric, asked, margin))
    if not compared:
        return None
    adjusted = holm({str(place): one.p for place, one in enumerate(compared)})
    cells = list(
        {key(c): c for one in compared for c in (one.pair.cell, one.pair.baseline)}.values()
    )
    names, places = titles(cells), place_columns(cells)
    rows: tuple[tuple[Entry, ...], ...] = tuple(
        (
            *place_of(one.pair.cell, places),
            names[key(one.pair.cell)],
            names[key(one.pair.baseline)],
            one.seeds,
            one.value,
            Measured(one.p, digits=4),
            Measured(adjusted[str(place)], digits=4),
            one.verdict,
        )
        for place, one in enumerate(compared)
    )
    within = "" if margin is None else f" Margin, stated beforehand: {metric.margin(margin).text}."
    caption = (
        f"Differences in {metric.name} of the last evaluated version, condition less baseline, "
        f"with the {interval_told(asked.options)}; p of Student's t in pairs of seeds (Welch's "
        f"where seeds differ), and Holm's over these {len(compared)}.{within} {runs_told(cells)}."
    )
    columns = ("condition", "baseline", "seeds", "difference", "p", "p (Holm)", "verdict")
    told = [text for one in compared for text in one.warnings]
    name = f"differences-{metric.column.replace('/', '_')}"
    return Written(name, caption, (*places, *columns), rows, each_once((*warned, *told)))


def not_compared(pair: Pair, metric: Metric) -> str:
    """Why two conditions cannot be compared; empty if they can."""
    for cell in (pair.cell, pair.baseline):
        if missing := lacks(cell, metric.column):
            return missing
        if len(cell.seeds) < 2:
            return f"not compared, as it has one seed alone: {cell.condition}"
    return ""


def contrast_of(pair: Pair, column: str) -> Contrast:
    """In pairs of the seeds that both have, if there are at least two."""
    first, second = pair.cell.scores(column), pair.baseline.scores(column)
    return in_pairs(first, second) if len({*first} & {*second}) > 1 else apart(first, second)


def one_difference(pair: Pair, metric: Metric, asked: Asked, margin: float | None) -> Difference:
    contrast = contrast_of(pair, metric.column)
    estimate, tails = difference(contrast, asked.options), tails_of(contrast)
    verdict = "no margin stated"
    if margin is not None:
        level, up = asked.options.level, metric.higher_is_better
        verdict = equivalence(contrast, metric.margin(margin), level, up).text
    seeds = f"{len(contrast.parts[0])} pairs"
    if not contrast.is_paired:
        seeds = " and ".join(str(len(part)) for part in contrast.parts)
    p = min(1.0, 2 * min(tails.more_than(0), tails.less_than(0)))
    value = measured(estimate, metric.digits)
    return Difference(pair, value, seeds, p, verdict, estimate.warnings)
