"""docs/what_breaks_elsewhere.md names tests: each of them exists, and each section has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what_breaks_elsewhere.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
STATES = ("solved", "partly", "not solved")


def complaints() -> list[dict[str, str]]:
    """The entries of each section, by their first word."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return [dict(re.findall(r"^- \*\*(\w+)\*\*: (.+)$", one, re.MULTILINE)) for one in sections]


def defined_in(path: Path) -> set[str]:
    """The names of the tests that a file defines."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def test_every_complaint_has_a_thread_a_state_and_the_test_that_holds_it() -> None:
    assert complaints()
    for one in complaints():
        assert set(one) == {"Threads", "Here", "State", "Test"}, one
        assert re.match(r"[\w-]+/[\w-]+ #\d+", one["Threads"]), one
        assert one["State"].startswith(STATES), one
        is_open = one["Test"] == "none" and one["State"].startswith("not solved")
        assert NAMED.fullmatch(one["Test"]) or is_open, one


def test_the_named_tests_exist() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(ROOT / path)] == []
