"""Tabulate the difference of each condition from its baseline, seed by seed, with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.registry.looks import family_text, looks_of
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.publication_tables.baseline import Pair, pairs
from rlhf_lab_analysis.publication_tables.entries import (
    Entry,
    Measured,
    PublicationTable,
    table_entry,
)
from rlhf_lab_analysis.publication_tables.estimates import lacks
from rlhf_lab_analysis.publication_tables.metrics import Metric, metrics_of
from rlhf_lab_analysis.publication_tables.naming import ConditionColumns, key
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.shown_runs import runs_text, seeds_of
from rlhf_lab_analysis.statistics.contrasts import difference, matched, p_value
from rlhf_lab_analysis.statistics.decisions import Shows, options_of
from rlhf_lab_analysis.statistics.equivalence import equivalence
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import WIN_RATE


@dataclass(frozen=True, eq=False)
class Difference:
    """A condition less its baseline. value: with the interval that the verdict is read from, at
    `level`, which holds together with those of its `family`. p: two-sided, by t, by itself;
    adjusted: for the comparisons of the same claim and its looks."""

    pair: Pair
    value: Measured
    level: str
    family: str
    seeds: str
    p: float
    adjusted: float
    verdict: str
    warnings: tuple[str, ...]


def differences(_: Tables, selection: Selection, options: TableOptions) -> list[PublicationTable]:
    """A table for each metric, with the verdicts, intervals and levels that the questions have."""
    found, warnings = pairs(selection, options.baseline)
    metrics = metrics_of(cells_of(found), options.metrics)
    tables = (table_of(metric, found, options, warnings) for metric in metrics)
    return [table for table in tables if table is not None]


def table_of(
    metric: Metric, found: Sequence[Pair], options: TableOptions, warnings: Sequence[str]
) -> PublicationTable | None:
    """The differences of one metric; None if no two conditions can be compared."""
    compared, warned = compare(found, metric, options)
    if not compared:
        return None
    cells = cells_of([one.pair for one in compared])
    conditions = ConditionColumns(cells)
    rows: tuple[tuple[Entry, ...], ...] = tuple(
        (
            *conditions.entries(one.pair.cell),
            conditions.title(one.pair.baseline),
            one.seeds,
            one.value,
            one.level,
            one.family,
            Measured(one.p, digits=4),
            Measured(one.adjusted, digits=4),
            one.verdict,
        )
        for one in compared
    )
    caption = (
        f"Differences in {metric.name} of the last evaluated version, condition less baseline, "
        "with the t interval that the verdict is read from, in pairs of common seeds (Welch's "
        "where fewer than 3 are common); its level is that of two one-sided tests of the margin, "
        "or of a two-sided test where none is stated, corrected, as is the second p, for the "
        "algorithms and models that the same change is tested with, and for the looks of a claim "
        "about it (Bonferroni)."
        f"{metric.margin_text(options.margin_of(metric.column))} {runs_text(seeds_of(cells))}."
    )
    heads = (
        *("baseline", "seeds", "difference", "level", "holds together with"),
        *("p", "p (corrected)", "verdict"),
    )
    warned += [text for one in compared for text in one.warnings]
    name = f"differences-{metric.column.replace('/', '_')}"
    columns = (*conditions.heads, *heads)
    return PublicationTable(name, caption, columns, rows, unique((*warned, *warnings)))


def cells_of(found: Sequence[Pair]) -> list[Cell]:
    """The conditions of these pairs, each once."""
    return list({key(c): c for pair in found for c in (pair.cell, pair.baseline)}.values())


def compare(
    found: Sequence[Pair], metric: Metric, options: TableOptions
) -> tuple[list[Difference], list[str]]:
    """The differences of all pairs that can be compared, and why the others cannot."""
    reasons = [not_compared(pair, metric) for pair in found]
    usable = [pair for pair, reason in zip(found, reasons, strict=True) if not reason]
    asked = [(pair.cell, pair.baseline) for pair in usable]
    # Claims look at win-rates.
    looks = looks_of(asked) if metric.column == WIN_RATE else [1] * len(asked)
    compared = [
        one_difference(pair, metric, options, together, times)
        for pair, together, times in zip(usable, count_together(asked), looks, strict=True)
    ]
    return compared, [reason for reason in reasons if reason]


def not_compared(pair: Pair, metric: Metric) -> str:
    """Why two conditions cannot be compared; empty if they can."""
    for cell in (pair.cell, pair.baseline):
        if missing := lacks(cell, metric.column):
            return missing
        if len(cell.seeds) < 2:
            return f"not compared, as it has one seed alone: {cell.condition}"
    return ""


def one_difference(
    pair: Pair, metric: Metric, options: TableOptions, together: int, looks: int
) -> Difference:
    """In pairs of common seeds, by the rule of all comparisons. together: how many comparisons of
    the same claim hold at once; looks: how often it was decided."""
    count = together * looks
    compared = with_common_seeds(pair.cell, pair.baseline)
    scores, before = (cell.scores(metric.column) for cell in compared)
    contrast, level = matched(scores, before), options.interval.level
    margin = options.margin_of(metric.column)
    shows, verdict = Shows.below, "no margin stated"
    if margin is not None:
        shows, up = Shows.equal, metric.higher_is_better
        verdict = equivalence(contrast, metric.margin(margin), level, up, count).text
    estimate = difference(contrast, options_of(shows, count, level))
    seeds = f"{len(contrast.parts[0])} pairs"
    if not contrast.is_paired:
        seeds = " and ".join(str(len(part)) for part in contrast.parts)
    p = p_value(contrast)
    return Difference(
        pair,
        table_entry(estimate, metric.digits),
        estimate.basis.options.percent,
        family_text(together, looks),
        seeds,
        p,
        min(1.0, count * p),
        verdict,
        estimate.warnings,
    )
