"""Each condition beside its baseline, seed by seed, with what that shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.comparison.claims import together
from analysis.comparison.selection import Selection
from analysis.statistics.contrasts import Contrast, difference, matched
from analysis.statistics.decisions import Shows, options_of
from analysis.statistics.equivalence import equivalence, tails_of
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.baseline import Pair, pairs
from analysis.written.basis import each_once, left_out_told, runs_told
from analysis.written.entries import Entry, Measured, Written, measured
from analysis.written.estimates import lacks
from analysis.written.metrics import Metric, metrics_of
from analysis.written.naming import key, place_columns, place_of, titles


@dataclass(frozen=True, eq=False)
class Difference:
    """A condition less its baseline. value: with the interval that the verdict is read from, at
    `level`. p: two-sided, by t, by itself; adjusted: for the comparisons of the same claim."""

    pair: Pair
    value: Measured
    level: str
    seeds: str
    p: float
    adjusted: float
    verdict: str
    warnings: tuple[str, ...]


def differences(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """A table for each metric, with the verdicts, intervals and levels that the questions have."""
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
    reasons = [not_compared(pair, metric) for pair in found]
    warned = [reason for reason in reasons if reason]
    usable = [pair for pair, reason in zip(found, reasons, strict=True) if not reason]
    if not usable:
        return None
    counts = together([(pair.cell, pair.baseline) for pair in usable])
    compared = [
        one_difference(pair, metric, asked, margin, count)
        for pair, count in zip(usable, counts, strict=True)
    ]
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
            one.level,
            Measured(one.p, digits=4),
            Measured(one.adjusted, digits=4),
            one.verdict,
        )
        for one in compared
    )
    within = "" if margin is None else f" Margin, stated beforehand: {metric.margin(margin).text}."
    caption = (
        f"Differences in {metric.name} of the last evaluated version, condition less baseline, "
        "with the t interval that the verdict is read from, in pairs of common seeds (Welch's "
        "where fewer than 3 are common); its level is that of two one-sided tests of the margin, "
        "or of a two-sided test where none is stated, corrected, as is the second p, for the "
        "algorithms and models that the same change is tested with "
        f"(Bonferroni).{within} {runs_told(cells)}."
    )
    heads = ("seeds", "difference", "level", "p", "p (corrected)", "verdict")
    told = [text for one in compared for text in one.warnings]
    name = f"differences-{metric.column.replace('/', '_')}"
    columns = (*places, "condition", "baseline", *heads)
    return Written(name, caption, columns, rows, each_once((*warned, *told)))


def not_compared(pair: Pair, metric: Metric) -> str:
    """Why two conditions cannot be compared; empty if they can."""
    for cell in (pair.cell, pair.baseline):
        if missing := lacks(cell, metric.column):
            return missing
        if len(cell.seeds) < 2:
            return f"not compared, as it has one seed alone: {cell.condition}"
    return ""


def contrast_of(pair: Pair, column: str) -> Contrast:
    """In pairs of common seeds, by the rule of all comparisons."""
    return matched(pair.cell.scores(column), pair.baseline.scores(column))


def one_difference(
    pair: Pair, metric: Metric, asked: Asked, margin: float | None, count: int
) -> Difference:
    """count: how many comparisons of the same claim hold together."""
    contrast, level = contrast_of(pair, metric.column), asked.options.level
    shows, verdict = Shows.below, "no margin stated"
    if margin is not None:
        shows, up = Shows.equal, metric.higher_is_better
        verdict = equivalence(contrast, metric.margin(margin), level, up, count).text
    estimate = difference(contrast, options_of(shows, count, level))
    seeds = f"{len(contrast.parts[0])} pairs"
    if not contrast.is_paired:
        seeds = " and ".join(str(len(part)) for part in contrast.parts)
    tails = tails_of(contrast)
    p = min(1.0, 2 * min(tails.more_than(0), tails.less_than(0)))
    value, told = measured(estimate, metric.digits), estimate.basis.options.percent
    adjusted = min(1.0, count * p)
    return Difference(pair, value, told, seeds, p, adjusted, verdict, estimate.warnings)
