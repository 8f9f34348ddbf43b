"""The numbers of the first screen are those of the tracked benchmark."""

from __future__ import annotations

import re

from tests.test_packaging import ROOT

NUMBER = r"[+-]?\d+(?:\.\d+)?"
ESTIMATE = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("\\", "")


def findings() -> list[list[str]]:
    """Cells of the table of findings: claim, verdict, evidence."""
    section = text("README.md").split("## What was found with it")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_every_estimate_of_the_readme_stands_on_the_page_of_the_benchmark() -> None:
    estimates = [e for row in findings() for e in ESTIMATE.findall(row[2])]
    assert len(estimates) >= 5
    page = text("docs/benchmark.md")
    assert [estimate for estimate in estimates if estimate not in page] == []


def test_every_verdict_of_the_readme_stands_on_the_page_of_the_benchmark() -> None:
    rows = [line.split(" | ") for line in text("docs/benchmark.md").splitlines() if " | " in line]
    for claim, verdict, _evidence in findings():
        word = re.findall(r"\*\*(.+?)\*\*", verdict)[0]
        verdicts = {row[3] for row in rows if len(row) > 4 and row[0].strip("| ") == claim}
        assert word in verdicts, (claim, verdicts)


def test_the_count_of_verdicts_is_that_of_the_page() -> None:
    counts = re.search(
        r"(\d+) verdicts: holds (\d+)(?:, holds, negligible (\d+))?, does not hold (\d+), "
        r"cannot tell (\d+)",
        text("docs/benchmark.md"),
    )
    assert counts is not None
    total, wholly, negligible, does_not, undecided = (int(one or 0) for one in counts.groups())
    holds = wholly + negligible
    sentence = (
        f"all {total} verdicts: {holds} hold, {does_not} do not, and {undecided} cannot be decided"
    )
    assert sentence in text("README.md").replace("\n", " ")
