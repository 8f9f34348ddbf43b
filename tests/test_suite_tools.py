"""What the suite measures of itself: seconds of tests, and faults that are put in to try them."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support.cpu_seconds import cpu_seconds, summary
from tests.support.mutants import faults_of

WORK = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""


def test_seconds_of_a_process_count_while_it_lives_and_after() -> None:
    before = cpu_seconds()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout and worker.stdout.readline() == "done\n"
    living = cpu_seconds()
    worker.communicate("")
    assert worker.returncode == 0
    # The clock of processes that live counts hundredths of a second.
    assert living - before > 0.25
    assert cpu_seconds() - before > 0.25


def test_a_summary_has_the_sum_the_folders_and_the_dearest_tests() -> None:
    seconds = {"tests/a/test_1.py::x": 1.0, "tests/a/test_1.py::y": 2.5, "tests/test_2.py::z": 0.5}
    assert [line.strip() for line in summary(seconds, 5.0)] == [
        "5.0  all: 3 tests",
        "3.5  tests/a: 2 tests",
        "0.5  tests: 1 tests",
        "1.0  imports, collection, handing out",
        "the 3 dearest tests:",
        "2.5  tests/a/test_1.py::y",
        "1.0  tests/a/test_1.py::x",
        "0.5  tests/test_2.py::z",
    ]


SOURCE = '''
BOUND = 3


def share(a, b, c):
    """A text with 1 < 2."""
    if a < b and c:
        return len(f"{a + 1}") * 2
    return True
'''


def test_faults_replace_one_thing_in_a_function_and_are_python() -> None:
    faults = {(fault.line, fault.old, fault.new) for fault in faults_of(SOURCE, "share.py")}
    assert faults == {
        (7, "a < b and c", "(not (a < b and c))"),
        (7, " < ", " >= "),
        (7, " and ", " or "),
        (8, " * ", " / "),
        (8, "2", "(2 + 1)"),
        (9, "True", "False"),
    }
    for fault in faults_of(SOURCE, "share.py"):
        assert ast.dump(ast.parse(fault.of(SOURCE))) != ast.dump(ast.parse(SOURCE))
