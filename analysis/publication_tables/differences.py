"""Tabulate the difference of each condition from its baseline, seed by seed, with its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.cell import with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair, count_together
from rlhf_lab_analysis.comparison.registry.looks import family_text, looks_of
from rlhf_lab_analysis.publication_tables.conditions import Conditions, runs_text
from rlhf_lab_analysis.publication_tables.formats import Measured, Notes, PublicationTable, Row
from rlhf_lab_analysis.publication_tables.options import Metric, TableOptions
from rlhf_lab_analysis.publication_tables.results import BySeed, over_seeds, time_note
from rlhf_lab_analysis.statistics.contrasts import (
    Contrast,
    difference,
    matched,
    p_value,
    speed_up,
)
from rlhf_lab_analysis.statistics.decisions import Shows, options_of
from rlhf_lab_analysis.statistics.equivalence import equivalence
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import WIN_RATE

TESTED = ("difference", "level", "holds together with", "p", "p (corrected)", "verdict")
RATIO = "times less"


def differences(_: Tables, conditions: Conditions, options: TableOptions) -> list[PublicationTable]:
    """A table for each metric: differences with the verdicts, intervals and levels that claims
    have; for each cost, how many times less than the baseline's. Asynchronous conditions beside
    synchronous ones are table 6 of arXiv:2410.18252."""
    found, notes = conditions.pairs(options.baseline)
    metrics = options.metrics_of([cell for pair in found for cell in pair]) if found else []
    tables = (table_of(metric, conditions, found, options, notes) for metric in metrics)
    return [table for table in tables if table.rows]


def table_of(
    metric: Metric,
    conditions: Conditions,
    found: Sequence[Pair],
    options: TableOptions,
    given: Sequence[str],
) -> PublicationTable:
    """The differences or ratios of one metric, of the pairs that have it."""
    notes, rows = Notes(), list[Row]()
    usable = [pair for pair in found if is_comparable(pair, metric, conditions, notes)]
    # Claims look at win-rates.
    looks = looks_of(usable) if metric.column == WIN_RATE else [1] * len(usable)
    for pair, *family in zip(usable, count_together(usable), looks, strict=True):
        name, base = map(conditions.title, pair)
        scores, before = map(metric.ends, with_common_seeds(*pair))
        contrast = matched(scores, before)
        values = []
        for own in (before, scores):
            common = {seed: value for seed, value in own.items() if seed in contrast.seeds}
            values.append(over_seeds(common, name, metric, options.interval.level, notes))
        if metric.is_cost:
            shown: Row = (ratio(before, scores, options, name, notes),)
        else:
            shown = tested(contrast, metric, options, family)
        notes.add(name, *contrast.warnings)
        seeds = " and ".join(str(len(part)) for part in contrast.parts)
        pairs = f"{seeds} pairs" if contrast.is_paired else seeds
        rows.append((*conditions.entries(pair[0]), base, pairs, *values, *shown))
    cells = list(dict.fromkeys(cell for pair in usable for cell in pair))
    notes.add("", time_note([metric], cells), *given)
    heads = ("baseline", "seeds", f"baseline's {metric.name}", metric.name)
    columns = (*conditions.heads, *heads, *((RATIO,) if metric.is_cost else TESTED))
    caption = f"{caption_of(metric, options)} {runs_text(cells)}" if cells else ""
    name = f"differences-{metric.column.replace('/', '_')}"
    return PublicationTable(name, caption, columns, tuple(rows), notes.lines)


def caption_of(metric: Metric, options: TableOptions) -> str:
    """What the numbers are; of costs, of which interval."""
    name, interval = metric.name, options.interval_text([metric])
    if metric.is_cost:
        return (
            f"Cost ({name}) up to the last evaluated version, evaluation left out, and how many "
            "times less than the baseline's it is: ratio of geometric means, in pairs where seeds "
            f"are the same ones, with its {options.interval.text} interval. {interval}"
        )
    margin = options.margin_of(metric)
    stated = "" if margin is None else f" Margin, stated beforehand: {margin.text}."
    return (
        f"Differences in {name} of the last evaluated version from the baseline, in pairs of "
        "common seeds (Welch's where fewer than 3 are common). Their t interval has the level of "
        "the verdict: two one-sided tests of the margin, or a two-sided test without one, "
        "corrected (Bonferroni) for the algorithms and models that a change is tested with and for "
        f"the looks of a claim.{stated} {interval}"
    )


def is_comparable(pair: Pair, metric: Metric, conditions: Conditions, notes: Notes) -> bool:
    """Whether both conditions have the metric and two seeds; a note where one has not."""
    for cell in pair:
        lacks = "" if len(cell.seeds) > 1 else "not compared, as it has one seed alone"
        lacks = lacks if metric.ends(cell) else f"not every run has {metric.column}"
        if lacks:
            notes.add(conditions.title(cell), lacks)
            return False
    return True


def tested(contrast: Contrast, metric: Metric, options: TableOptions, family: Sequence[int]) -> Row:
    """The entries of TESTED. family: how many comparisons of a claim hold together, and how often
    it was decided."""
    together, looks = family
    count, level, margin = together * looks, options.interval.level, options.margin_of(metric)
    shows, verdict = Shows.below, "no margin stated"
    if margin is not None:
        shows, up = Shows.equal, metric.higher_is_better
        verdict = equivalence(contrast, margin, level, up, count).text
    found = difference(contrast, options_of(shows, count, level))
    p = p_value(contrast)
    return (
        measured(found, metric.digits),
        found.basis.options.percent,
        family_text(together, looks),
        Measured(p, digits=4),
        Measured(min(1.0, count * p), digits=4),
        verdict,
    )


def ratio(
    before: BySeed, after: BySeed, options: TableOptions, name: str, notes: Notes
) -> Measured | None:
    """How many times less a cost is than the baseline's; None of costs of 0."""
    if min(*before.values(), *after.values()) <= 0:
        notes.add(name, "a cost of 0 has no ratio")
        return None
    return measured(speed_up(before, after, options.interval), 2)


def measured(found: Estimate, digits: int) -> Measured:
    """An estimate; without an interval where no seed differs from another."""
    if found.low == found.high:
        return Measured(found.point, digits=digits)
    return Measured(found.point, found.low, found.high, digits)
