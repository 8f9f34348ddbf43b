"""Show the numbers behind a question that has no answer yet, without a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell, Key
from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unanswered
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.report.groups import last
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.words import KL, WALL, is_share, label, short_label

MOST_COMPARED = 6


@dataclass(frozen=True)
class OpenRow:
    """A condition of a comparison without a verdict: its numbers, and how it differs from the
    first."""

    title: str
    seeds: str
    texts: Sequence[str]


@dataclass(frozen=True)
class OpenQuestion:
    """A question without an answer. compared: rows of each comparison that it would be made of."""

    question: str
    reason: str
    needs: str
    heads: Sequence[str]
    compared: Sequence[Sequence[OpenRow]]
    conditions: tuple[Key, ...]


def open_questions(
    unanswered: Sequence[Unanswered], titles: Mapping[Key, str], criteria: Criteria
) -> list[OpenQuestion]:
    """The questions without an answer, those first whose conditions are there."""
    ordered = sorted(unanswered, key=lambda one: not one.compared)
    return [open_question(one, titles, criteria) for one in ordered]


def open_question(one: Unanswered, titles: Mapping[Key, str], criteria: Criteria) -> OpenQuestion:
    metrics = list(dict.fromkeys((criteria.quality, KL, WALL)))
    heads = [
        *("condition", "seeds", *map(short_label, metrics)),
        *(f"{label(criteria.quality)}, less the first", "speed-up"),
    ]
    rows = [
        [open_row(cell, cells[0], titles, metrics) for cell in cells]
        for cells in one.compared[:MOST_COMPARED]
    ]
    keys = dict.fromkeys(cell.key for cells in one.compared for cell in cells)
    return OpenQuestion(one.question, one.reason, one.needs, heads, rows, tuple(keys))


def open_row(cell: Cell, first: Cell, titles: Mapping[Key, str], metrics: Sequence[str]) -> OpenRow:
    own, base = [{m: mean_of(one, m) for m in metrics} for one in (cell, first)]
    texts = [number_text(own[metric]) for metric in metrics]
    quality = metrics[0]
    change, ratio = own[quality] - base[quality], base[WALL] / own[WALL] if own[WALL] else math.nan
    is_known = cell is not first and math.isfinite(change)
    scale, unit = (100, " points") if is_share(quality) else (1, "")
    texts.append(f"{scale * change:+.1f}{unit}" if is_known else "")
    texts.append(f"{ratio:.2f}x" if cell is not first and math.isfinite(ratio) else "")
    title = titles.get(cell.key, cell.condition)
    return OpenRow(title, f"{len(cell.seeds)} ({ranges_text(cell.seeds)})", texts)


def mean_of(cell: Cell, column: str) -> float:
    """The mean over seeds at the last evaluated version; NaN if no seed has it."""
    values = [last(frame, column) for frame in cell.rows.values()]
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
