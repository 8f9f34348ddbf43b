"""A pytest plugin: CPU seconds of every test and of its processes, summed at the end of each run.

The seconds of a test are those of the process that runs it, from its first fixture to the last that
ends with it, and those of all processes below: the ones that were waited for, and the ones that
still live, such as forkservers. A session's fixture counts for the test that asks for it first.
What belongs to no test (imports, collection, the process that hands out tests) is a row by itself.
`--seconds-table=FILE` writes a row for each test, with its worker, begin and wall-clock.
"""

from __future__ import annotations

import csv
import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
NUM_DEAREST = 20


def cpu_seconds() -> float:
    """CPU seconds so far of this process and of all below it, ended ones included."""
    return _own() + sum(map(_of_tree, _children(os.getpid())))


def _own() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _children(pid: int) -> list[int]:
    """Of all threads. A system without these lists has none: its processes count when they end."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in _text(path).split()]


def _of_tree(pid: int) -> float:
    """User and system time of a process and of its children, which it waited for or which live."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS + sum(map(_of_tree, _children(pid)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process ended since it was listed
        return ""


class Phase(NamedTuple):
    """Setup, call or teardown of a test."""

    worker: str
    test: str
    begin: float
    """Seconds since the epoch."""
    wall_seconds: float
    cpu_seconds: float


class CpuSeconds:
    """Measures in the processes that run tests; collects and prints in the one that reports."""

    def __init__(self) -> None:
        self.last = 0.0
        self.phases: list[Phase] = []
        self.of_workers = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.last = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self.last = self.last, cpu_seconds()
        # Attributes of a report travel from a worker of pytest-xdist to the process that reports.
        report.__dict__["cpu_seconds"] = max(0.0, self.last - before)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        attributes = report.__dict__
        worker = attributes.get("worker_id", "")
        seconds = attributes.get("cpu_seconds", 0.0)
        self.phases.append(Phase(worker, report.nodeid, report.start, report.duration, seconds))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker's seconds travel with its last message."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["cpu_seconds"] = cpu_seconds()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        output: dict[str, float] = getattr(node, "workeroutput", {})
        self.of_workers += output.get("cpu_seconds", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        config = terminalreporter.config
        tests: dict[str, float] = defaultdict(float)
        for phase in self.phases:
            tests[phase.test] += phase.cpu_seconds
        terminalreporter.section("CPU seconds, processes included")
        for line in summary(tests, self._all(config)):
            terminalreporter.write_line(line)
        if table := config.getoption("seconds_table"):
            # A parameter may be a text of any length.
            rows = [phase._replace(test=phase.test[:200]) for phase in self.phases]
            with Path(table).open("w", newline="") as file:
                csv.writer(file).writerows([Phase._fields, *rows])

    def _all(self, config: pytest.Config) -> float:
        """Workers send their seconds; the process that hands out tests has no other children."""
        if config.pluginmanager.hasplugin("dsession"):
            return self.of_workers + time.process_time()
        return cpu_seconds()


def summary(tests: dict[str, float], whole: float) -> list[str]:
    """Lines: the sum, by folder, and the dearest tests; `tests` are seconds by the test's id."""
    folders: dict[str, list[float]] = defaultdict(list)
    for test, seconds in tests.items():
        folders[_folder(test)].append(seconds)
    dearest = sorted(tests.items(), key=lambda item: -item[1])[:NUM_DEAREST]
    of_tests = sum(tests.values())
    return [
        f"{whole:8.1f}  all: {len(tests)} tests",
        *(
            f"{sum(seconds):8.1f}  {folder}: {len(seconds)} tests"
            for folder, seconds in sorted(folders.items(), key=lambda item: -sum(item[1]))
        ),
        f"{max(0.0, whole - of_tests):8.1f}  imports, collection, handing out",
        f"the {len(dearest)} dearest tests:",
        *(f"{seconds:8.1f}  {test[:140]}" for test, seconds in dearest),
    ]


def _folder(test: str) -> str:
    """tests/ROOM of a test's id; what has no room is in tests."""
    path = Path(test.partition("::")[0])
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else "tests"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seconds-table", metavar="FILE", help="write CPU and wall-clock seconds of each phase"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds(), "rlhf_lab_cpu_seconds")
