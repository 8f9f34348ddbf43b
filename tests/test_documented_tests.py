"""Pages that name tests: each test exists, and each complaint and detail has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rlhf_lab.experiment.config.suggestions import config_names

pytestmark = pytest.mark.pages

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "what_breaks_elsewhere.md"
NPLUS = ROOT / "docs" / "nplus.md"
UNTIL = re.compile(r"an? (option|test) like `(.+)`")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
STATES = ("solved", "partly", "not solved")


def complaints() -> list[dict[str, str]]:
    """The entries of each section, by their first word."""
    text = PAGE.read_text(encoding="utf-8").replace("\n  ", " ")
    sections = text.split("\n## ")[1:]
    return [dict(re.findall(r"^- \*\*(\w+)\*\*: (.+)$", one, re.MULTILINE)) for one in sections]


def defined_in(path: Path) -> set[str]:
    """The tests that a file defines and nothing skips. A whole file may need an extra."""
    found: set[str] = set()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    whole = [ast.unparse(node) for node in body if isinstance(node, ast.Assign | ast.Expr)]
    if any(re.search(r"\b(skip|xfail)\b", text) for text in whole):
        return found
    for node in body:
        if isinstance(node, ast.FunctionDef):
            marks = " ".join(map(ast.unparse, node.decorator_list))
            if not re.search(r"\b(skip|skipif|xfail)\b", marks):
                found.add(node.name)
    return found


def test_every_complaint_has_a_thread_a_state_and_the_test_that_holds_it() -> None:
    assert complaints()
    for one in complaints():
        is_solved = one["State"].startswith("solved")
        assert set(one) - {"Until"} == {"Threads", "Here", "State", "Test"}, one
        assert re.match(r"[\w-]+/[\w-]+ #\d+", one["Threads"]), one
        assert one["State"].startswith(STATES), one
        is_open = one["Test"] == "none" and one["State"].startswith("not solved")
        assert NAMED.fullmatch(one["Test"]) or is_open, one
        assert ("Until" in one) == (not is_solved), one


def test_what_is_open_has_neither_the_option_nor_the_test_that_would_end_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))]
    present = {
        "option": config_names(),
        "test": [name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)],
    }
    assert all(present.values())
    for one in complaints():
        if until := one.get("Until"):
            found = UNTIL.fullmatch(until)
            assert found, one
            kind, pattern = found.groups()
            assert [name for name in present[kind] if re.search(pattern, name)] == [], one


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
