"""The page docs/gpu.md: what was measured, beside what was expected. Standard library alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Verdict
from benchmarks.gpu.sections import SECTIONS, Section
from benchmarks.gpu.supervise import findings_of, rows_of

# More conditions that hold are one row.
MOST_ROWS = 24
BEGIN, END = "<!-- gpu-check: begin -->", "<!-- gpu-check: end -->"
ON_CPU = (
    "**These are results of the small form on a CPU.** They show that the check itself runs; they "
    "say nothing about the speed of a GPU, and the expected values, which are of one H200, are not "
    "those of this machine."
)


def text_of(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown."""
    facts: dict[str, Any] = next((row["facts"] for row in reversed(rows) if "facts" in row), {})
    lines = [caption(facts), ""]
    if facts.get("device") != "cuda":
        lines += [ON_CPU, ""]
    for section in SECTIONS:
        lines += table(section, rows, facts)
    return "\n".join(lines)


def caption(facts: dict[str, Any]) -> str:
    """One line: when, on what, with which versions."""
    day, name = facts.get("day", "an unknown day"), facts.get("name", "an unknown machine")
    words = [f"Measured on {day} on {name}"]
    words += [f"{name} {facts[key]}" for key, name in NAMES.items() if facts.get(key)]
    return ", ".join(words) + "."


NAMES = {
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "transformers": "transformers",
    "python": "Python",
}


def table(section: Section, rows: Sequence[dict[str, Any]], facts: dict[str, Any]) -> list[str]:
    """The rows of a section below its heading; none if it was not run. facts: of the page, which a
    section repeats only where its own are others."""
    found = findings_of(rows, section.number)
    if not found:
        return []
    lines = [f"### {section.number} {section.name}: {section.about}", ""]
    own = [row["facts"] for row in rows if row["section"] == section.number and "facts" in row]
    if own and own[-1] != facts:
        lines += [caption(own[-1]), ""]
    lines += ["| what | measured | expected | verdict |", "|---|---|---|---|"]
    passed = [one for one in found if one.verdict is Verdict.passed]
    if len(passed) > MOST_ROWS:
        found = [one for one in found if one.verdict is not Verdict.passed]
        lines.append(f"| {len(passed)} conditions | all hold | all hold | PASS |")
    for one in found:
        cells = (one.name, one.text, one.expected, one.verdict.value)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


class NoMarkers(ValueError):
    """A page without the two lines between which results stand."""


def write(results: Path, page: Path) -> None:
    """Put the results between the markers of a page; the rest of it stays. Raises NoMarkers."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoMarkers(f"--docs={page} has no lines {BEGIN} and {END}: add them")
    page.write_text(f"{before}{BEGIN}\n{text_of(rows_of(results))}{END}{after}", encoding="utf-8")


def is_of_a_gpu(page: Path) -> bool:
    """Whether the page holds results of a GPU, which those of a CPU must not replace."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return "Measured on" in text and ON_CPU not in text


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How many findings there are of each verdict."""
    counts: dict[str, int] = {}
    for row in rows:
        if "verdict" in row:
            counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    return json.dumps(counts)
