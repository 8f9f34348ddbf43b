"""What is wrong with the runs of a page, and with what is told from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.report.groups import Group
from analysis.report.markup import Markup, element, joined
from analysis.report.numbers import listed
from analysis.sources.findings import Finding
from analysis.statistics.results import FEW_SEEDS

OPEN = 5


def warning_list(
    findings: Sequence[Finding],
    left_out: Sequence[str],
    groups: Sequence[Group],
    others: Iterable[str],
) -> Markup:
    """Findings by kind, runs that do not count, conditions of too few seeds, and other remarks."""
    boxes = [box(kind, lines) for kind, lines in by_kind(findings).items()]
    boxes += [box("runs that do not count", list(left_out))] if left_out else []
    few = too_few(groups)
    boxes += [box(f"fewer than {FEW_SEEDS} seeds", few)] if few else []
    remarks = list(dict.fromkeys(others))
    boxes += [box("of what is told", remarks)] if remarks else []
    return joined(boxes) if boxes else element("p", "None.", class_="quiet")


def by_kind(findings: Sequence[Finding]) -> dict[str, list[str]]:
    kinds = sorted({str(finding.kind) for finding in findings})
    return {
        kind.replace("_", " "): [f"{one.place}: {one.what}" for one in findings if one.kind == kind]
        for kind in kinds
    }


def too_few(groups: Sequence[Group]) -> list[str]:
    """Conditions whose intervals stand on few seeds, or which have none."""
    return [
        f"{group.env}: {group.title}: {len(group.seeds)} ({listed(group.seeds)})"
        + (", so it has no interval" if len(group.seeds) == 1 else "")
        for group in groups
        if len(group.seeds) < FEW_SEEDS
    ]


def box(title: str, lines: Sequence[str]) -> Markup:
    """A heading that opens to its lines; short ones are open."""
    items = element("ul", *(element("li", line) for line in lines))
    return element(
        "details", element("summary", f"{title} ({len(lines)})"), items, open=len(lines) <= OPEN
    )
