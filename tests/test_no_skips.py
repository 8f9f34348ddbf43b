"""Skipped tests fail where a target has installed what they need."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.no_skips import without_skip


def report(outcome: Literal["passed", "failed", "skipped"], text: object) -> pytest.TestReport:
    place = ("test_x.py", 1, "test_x")
    return pytest.TestReport("test_x.py::test_x", place, {}, outcome, text, "setup")  # type: ignore[arg-type]


def test_a_skipped_test_fails_with_its_reason() -> None:
    found = without_skip(report("skipped", ("test_x.py", 1, "Skipped: needs openenv")))
    assert found.failed and found.longrepr == "RLHF_LAB_NO_SKIPS: Skipped: needs openenv"


def test_other_tests_stay_as_they_are() -> None:
    assert without_skip(report("passed", None)).passed
    expected = report("skipped", "")
    expected.wasxfail = "reason"
    assert without_skip(expected).skipped
