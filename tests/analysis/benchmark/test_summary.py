"""The summary of docs/benchmark.md has the numbers of the table below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pages
PAGE = Path(__file__).parents[3] / "docs" / "benchmark.md"
NUMBER = r"([+-]?\d+\.\d+)"
INTERVAL = re.compile(rf"{NUMBER}\s\[{NUMBER},\s{NUMBER}\]")
Interval = tuple[float, float, float]


def intervals(text: str) -> set[Interval]:
    """Every `value [low, high]` of a text."""
    return {(float(v), float(low), float(high)) for v, low, high in INTERVAL.findall(text)}


def test_every_interval_of_the_summary_is_one_of_the_table() -> None:
    """A loss of 4.2 [2.2, 6.1] is a difference of -4.2 [-6.1, -2.2]."""
    page = PAGE.read_text(encoding="utf-8").replace("\\", "")
    _, after = page.split("## What came out")
    summary, table = after.split("\n## ", 1)
    found = intervals(table)
    known = found | {(-v, -high, -low) for v, low, high in found}
    assert intervals(summary) and intervals(summary) - known == set()
