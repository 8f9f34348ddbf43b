"""A skipped test as a failed one, where a target has installed all that its tests need."""

from __future__ import annotations

import pytest


def without_skip(report: pytest.TestReport) -> pytest.TestReport:
    """The report of a test, failed with the reason if the test was skipped. One that is expected to
    fail, and did, stays as it is."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"RLHF_LAB_NO_SKIPS: {reason}"
    return report
