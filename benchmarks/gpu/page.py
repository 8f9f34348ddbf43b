"""The page docs/gpu.md: what was measured, beside what was expected. Standard library alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Refused, Verdict
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
FACTS = {
    "system": "system",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "transformers": "transformers",
    "python": "Python",
}


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
    versions = [f"{word} {facts[key]}" for key, word in FACTS.items() if facts.get(key)]
    return ", ".join([f"Measured on {day} on {name}", *versions]) + "."


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
    others = [one for one in found if one.verdict is not Verdict.passed]
    if len(found) - len(others) > MOST_ROWS:
        lines.append(f"| {len(found) - len(others)} conditions | all hold | all hold | PASS |")
        found = others
    for one in found:
        cells = (one.name, one.text, one.expected, one.verdict.value)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def write(results: Path, page: Path) -> None:
    """Put the results between the markers of a page; the rest of it stays. Raises Refused."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Refused(f"--docs={page} has no lines {BEGIN} and {END}: add them")
    page.write_text(f"{before}{BEGIN}\n{text_of(rows_of(results))}{END}{after}", encoding="utf-8")


def is_of_a_gpu(page: Path) -> bool:
    """Whether the page holds results of a GPU, which those of a CPU must not replace."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return "Measured on" in text and ON_CPU not in text
