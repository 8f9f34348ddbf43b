"""Pages that name tests: each test exists, and each complaint and detail has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.pages

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what_breaks_elsewhere.md"
NPLUS = ROOT / "docs" / "nplus.md"
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


def test_every_detail_of_nplus_has_a_test_or_is_named_as_missing() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", NPLUS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 26))
    for number, text in rows:
        last = text.split(" | ")[-1]
        assert NAMED.search(last) or last.startswith(("not implemented", "no option")), number


@pytest.mark.parametrize("page", [PAGE, NPLUS], ids=lambda page: page.stem)
def test_the_named_tests_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert named
    assert [f"{path}::{name}" for path, name in named if name not in defined_in(ROOT / path)] == []
