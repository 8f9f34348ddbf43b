"""The page's section on stage seeds and RL seeds: how much differences vary between each."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.crossed import Crossed, crossed
from rlhf_lab_analysis.comparison.registry.decisions import Decisions
from rlhf_lab_analysis.comparison.selection import Selection

HEAD = (
    "claim",
    "setting",
    "difference",
    "stage seeds, RL seeds",
    "between stage seeds",
    "between RL seeds",
    "rest",
    "share of stage seeds",
    "a stage seed with all its RL seeds is worth",
)


def crossed_rows(
    found: Sequence[Decisions], selection: Selection, criteria: Criteria
) -> tuple[tuple[str, ...], ...]:
    """A row for each claim and setting whose runs have several RL seeds in each stage seed."""
    return tuple(
        row(one)
        for decisions in found
        for claim in decisions.registry.claims
        for one in crossed(claim, selection, criteria)
    )


def row(one: Crossed) -> tuple[str, ...]:
    parts, unit = one.parts, one.claim.measure.unit
    scale, words = (100, "points") if unit is Unit.points else (1, str(unit))
    if unit is Unit.times:
        words = "of the logarithm"
    spreads = [f"{scale * part:.2f} {words}" for part in (parts.rows, parts.columns, parts.rest)]
    spreads[1] += f" (p = {parts.p_columns:.2f})"
    return (
        one.claim.name,
        one.setting,
        one.label,
        f"{one.stages}, {one.seeds}",
        *spreads,
        f"{parts.share:.2f} [{parts.low:.2f}, {parts.high:.2f}]",
        f"{parts.worth(one.seeds):.1f} stage seeds with one each",
    )
