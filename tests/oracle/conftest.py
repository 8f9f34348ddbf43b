"""Prints the largest differences that the comparisons with other implementations found."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A table of the largest absolute difference per algorithm, over all tests that ran."""
    worst: dict[str, float] = {}
    count: dict[str, int] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for key, value in report.user_properties:
            if key == "largest_difference":
                name, difference = value
                worst[name] = max(worst.get(name, 0.0), difference)
                count[name] = count.get(name, 0) + 1
    if worst:
        terminalreporter.section("largest absolute difference (loss and gradient)")
        for name in sorted(worst):
            terminalreporter.write_line(f"{name:<44} {worst[name]:.1e}  ({count[name]} batches)")
