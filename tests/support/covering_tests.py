"""A pytest plugin for coverage: every measured line knows the test functions that run it.

`make coverage` loads it. Lines that fixtures run belong to the test that asked for the fixture
first; processes that a test starts are measured under its name.
"""

from __future__ import annotations

import os

import pytest
from coverage import Coverage


class Contexts:
    """Names the test function that runs, whatever its parameters."""

    def __init__(self) -> None:
        self.test = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        test = nodeid.partition("[")[0].partition("@")[0]
        running = Coverage.current()
        if running and test != self.test:
            running.switch_context(test)
            # pyproject.toml has its value as the context of each process that a test starts.
            os.environ["COVERED_BY"] = test
            self.test = test


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Contexts())
