"""Async beside sync at each scale (arXiv:2410.18252, figures 1 and 9, table 6)."""

from __future__ import annotations

from analysis.comparison.claims import together
from analysis.comparison.selection import Selection
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.baseline import Baseline, Pair, paired
from analysis.written.basis import each_once, interval_told, left_out_told, runs_told
from analysis.written.differences import not_compared, one_difference
from analysis.written.entries import Entry, Written
from analysis.written.estimates import over_seeds
from analysis.written.metrics import metric_of
from analysis.written.naming import key, place_columns, place_of, titles
from analysis.written.speed import cost_of

SYNC = Baseline({"mode": "sync"})
WALL = "x/wall_seconds"


def scales(_: Tables, selection: Selection, asked: Asked) -> list[Written]:
    """Quality and seconds of every asynchronous condition and of its synchronous one."""
    metric, warned = metric_of(asked.quality), []
    found: list[Pair] = []
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        for pair in paired(selection.only(sweep=sweep), SYNC)[0]:
            if reason := not_compared(pair, metric):
                warned.append(reason)
            else:
                found.append(pair)
    if not found:
        return []
    cells = list({key(c): c for pair in found for c in (pair.cell, pair.baseline)}.values())
    names, places = titles(cells), place_columns(cells)
    rows = []
    counts = together([(pair.cell, pair.baseline) for pair in found])
    for pair, count in zip(found, counts, strict=True):
        entries, told = row_of(pair, asked, count)
        rows.append((*place_of(pair.cell, places), names[key(pair.cell)], *entries))
        warned += told
    margin = asked.margin_of(asked.quality, metric.is_share)
    within = "" if margin is None else f" Margin, stated beforehand: {metric.margin(margin).text}."
    caption = (
        f"Asynchronous conditions beside synchronous ones: {metric.name} of the last evaluated "
        "version, difference in pairs of common seeds with the t interval that the verdict is read "
        "from, at its level, and wall-clock up to it, evaluation left out (speed-up: ratio of "
        "geometric means); other numbers have their "
        f"{interval_told(asked.options, of_shares=True)}.{within} {runs_told(cells)}."
    )
    quality = ("seeds", "sync", "async", "difference", "level", "verdict")
    warnings = (*each_once(warned), *left_out_told(selection))
    columns = (*places, "condition", *quality, "sync, s", "async, s", "speed-up")
    return [Written("scales", caption, columns, tuple(rows), warnings)]


def row_of(pair: Pair, asked: Asked, count: int) -> tuple[tuple[Entry, ...], list[str]]:
    metric = metric_of(asked.quality)
    margin = asked.margin_of(asked.quality, metric.is_share)
    made = one_difference(pair, metric, asked, margin, count)
    told = list(made.warnings)
    both: list[Entry] = []
    for cell in (pair.baseline, pair.cell):
        scores = cell.scores(metric.column)
        entry, said = over_seeds(
            scores, asked.measure, asked.options, metric.digits, metric.is_share
        )
        both.append(entry)
        told += said
    before, _, _ = cost_of(pair.baseline, None, WALL, asked)
    after, ratio, said = cost_of(pair.cell, pair.baseline, WALL, asked)
    shown = (made.seeds, *both, made.value, made.level, made.verdict)
    return (*shown, before, after, ratio), [*told, *said]
