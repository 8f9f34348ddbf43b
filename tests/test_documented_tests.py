"""docs/what_breaks_elsewhere.md names tests: each of them exists, and each row has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what_breaks_elsewhere.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
STATES = ("solved", "partly", "not solved")


def rows() -> list[list[str]]:
    """The cells of each complaint."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d", line)]


def defined_in(path: Path) -> set[str]:
    """The names of the tests that a file defines."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_every_complaint_has_a_thread_a_state_and_the_test_that_holds_it() -> None:
    assert [row[0] for row in rows()] == [str(n) for n in range(1, len(rows()) + 1)]
    for number, _, thread, _, state, test in rows():
        assert re.match(r"[\w-]+/[\w-]+ #\d+", thread), number
        assert state.startswith(STATES), number
        assert NAMED.fullmatch(test) or (test, state[:10]) == ("none", "not solved"), number


def test_the_named_tests_exist() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(ROOT / path)] == []
