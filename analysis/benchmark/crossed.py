"""The page's section on stage seeds and RL seeds: how much differences vary between each."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.registry.answers import Criteria, Unit
from rlhf_lab_analysis.comparison.registry.decisions import Decisions
from rlhf_lab_analysis.comparison.registry.splits import Split, splits
from rlhf_lab_analysis.comparison.selection import Selection

HEAD = (
    "claim",
    "setting",
    "difference",
    "stage seeds, RL seeds",
    "mean of each RL seed",
    "between stage seeds",
    "between RL seeds",
    "rest",
    "over stage seeds",
    "over both",
)


def crossed_rows(
    found: Sequence[Decisions], selection: Selection, criteria: Criteria
) -> tuple[tuple[str, ...], ...]:
    """A row for each claim and setting whose runs have several RL seeds in each stage seed."""
    return tuple(
        row(one)
        for decisions in found
        for claim in decisions.registry.claims
        for one in splits(claim, selection, criteria)
    )


def row(one: Split) -> tuple[str, ...]:
    parts, unit = one.parts, one.claim.measure.unit
    scale = 100 if unit is Unit.points else 1
    words = "of the logarithm" if unit is Unit.times else str(unit)
    spreads = [f"{scale * part:.2f} {words}" for part in (parts.rows, parts.columns, parts.rest)]
    spreads[1] += f" (p = {parts.p_columns:.3f})"
    intervals = [
        f"{scale * parts.mean:+.1f} [{scale * (parts.mean - half):+.1f}, "
        f"{scale * (parts.mean + half):+.1f}] (95%)"
        for half in (parts.of_stages, parts.of_both)
    ]
    return (
        one.claim.name,
        one.setting,
        one.label,
        f"{one.stages}, {len(one.means)}",
        ", ".join(f"{scale * mean:+.1f}" for mean in one.means.values()),
        *spreads,
        *intervals,
    )
