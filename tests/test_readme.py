"""What README.md says of the tracked benchmark is what the page of the benchmark says."""

from __future__ import annotations

import re

import pytest

from tests.test_packaging import ROOT

pytestmark = pytest.mark.pages

NUMBER = r"[+-]?\d+(?:\.\d+)?"
ESTIMATE = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("\\", "")


def rows(name: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = [line for line in text(name).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def test_every_estimate_of_the_readme_stands_on_the_page_of_the_benchmark() -> None:
    page = text("docs/benchmark.md")
    assert [one for one in ESTIMATE.findall(text("README.md")) if one not in page] == []


def test_a_claim_of_the_page_has_the_verdict_of_the_page() -> None:
    verdicts: dict[str, set[str]] = {}
    for row in rows("docs/benchmark.md"):
        if len(row) > 4:
            verdicts.setdefault(row[0], set()).add(row[4])
    for claim, *cells in rows("README.md"):
        if claim in verdicts and (said := re.match(r"\*\*(.+?)\*\*", cells[1])):
            assert said[1] in verdicts[claim], claim
