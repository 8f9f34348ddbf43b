"""List the findings on a page's runs, and the doubts about conclusions from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlhf_lab_analysis.ranges import ranges_text, unique
from rlhf_lab_analysis.report.groups import Group
from rlhf_lab_analysis.sources.findings import Finding
from rlhf_lab_analysis.statistics.results import FEW_SEEDS


def warning_list(
    findings: Sequence[Finding],
    left_out: Sequence[str],
    groups: Sequence[Group],
    others: Iterable[str],
) -> list[tuple[str, Sequence[str]]]:
    """Findings by kind, runs that do not count, conditions of too few seeds, and other remarks."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in sorted({str(f.kind) for f in findings})}
    for one in findings:
        by_kind[str(one.kind)].append(f"{one.place}: {one.what}")
    boxes: list[tuple[str, Sequence[str]]] = [
        *((kind.replace("_", " "), lines) for kind, lines in by_kind.items()),
        ("runs that do not count", left_out),
        (f"fewer than {FEW_SEEDS} seeds", too_few(groups)),
        ("remarks on verdicts", unique(others)),
    ]
    return [(title, lines) for title, lines in boxes if lines]


def too_few(groups: Sequence[Group]) -> list[str]:
    """Conditions whose intervals stand on few seeds, or which have none."""
    return [
        f"{group.cell.env}: {group.title}: {len(seeds)} ({ranges_text(seeds)})"
        + (", so it has no interval" if len(seeds) == 1 else "")
        for group in groups
        for seeds in [group.cell.seeds]
        if len(seeds) < FEW_SEEDS
    ]
