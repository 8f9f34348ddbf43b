"""Expressions that read what a policy writes take steps in proportion to its length."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlhf_lab
from tests.support.regex_steps import Steps, growth

ROOT = Path(rlhf_lab.__file__).parent
ROOMS = ("tasks", "rewards", "rollout", "evaluation")
METHODS = ("search", "match", "fullmatch", "split", "sub", "findall", "finditer")
AT_START = {"match", "fullmatch"}
# Of references alone.
EXEMPT = {"constraints/text.py:BEFORE_HEAD"}
# Of names, options and data alone.
OTHERS = ("hub.py", "options.py", "pairs.py")
# Between linear (2) and quadratic (4).
LIMIT = 3.0
FLAGS = {"I": re.I, "IGNORECASE": re.I, "S": re.S, "DOTALL": re.S, "M": re.M, "MULTILINE": re.M}


def calls_in(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls of functions of `re`, with the function's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "re":
                yield node.func.attr, node


def text_of(node: ast.expr) -> str | None:
    """A literal expression; what is filled in is a letter. None for one that options give."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x"
                       for part in node.values)  # fmt: skip
    return None


def flags_of(node: ast.Call) -> int:
    named = (one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return sum({FLAGS[name] for name in named if name in FLAGS})


def methods_of(tree: ast.AST) -> dict[str, set[str]]:
    """By the name of an expression, the methods of it that a module calls."""
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in METHODS:
            continue
        if isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
    return used


def found() -> dict[str, tuple[re.Pattern[str], bool]]:
    """Each expression of the rooms by its place, and whether it is only matched at the start."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name not in OTHERS
    }
    used = {path: methods_of(tree) for path, tree in trees.items()}
    every = {}
    for path, tree in trees.items():
        place = str(path.relative_to(ROOT / path.relative_to(ROOT).parts[0]))
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if any(method == "compile" for method, _ in calls_in(statement)):
                    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                    pattern = getattr(importlib.import_module(f"rlhf_lab.{dotted}"), name)
                    methods = used[path].get(name) or set().union(
                        *(one.get(name, set()) for one in used.values())
                    )
                    every[f"{place}:{name}"] = (pattern, methods <= AT_START)
        for method, call in calls_in(tree):
            text = text_of(call.args[0]) if method in METHODS else None
            if text is not None:
                pattern = re.compile(text, flags_of(call))
                every[f"{place}:{call.lineno} {text}"] = (pattern, method in AT_START)
    return {name: one for name, one in every.items() if name not in EXEMPT}


def test_no_expression_that_reads_samples_takes_quadratic_steps() -> None:
    every = found()
    assert len(every) > 40
    grown = {name: growth(*one) for name, one in every.items()}
    assert {name: one for name, one in grown.items() if one[0] > LIMIT} == {}


@pytest.mark.parametrize("text", [
    r"#### *\\?\$? *(\d+)",
    r".+?(?:[.!?]+[\"')\]*]*(?=\s|$)|$)",
    r"<<[^<>\n]*\w[^<>\n]*>>",
    r"\[.*?\]",
    r"<<[^\n]+>>",
    r"([0-9]+)\+([0-9]+)=",
    r"(?:a+)+b",
])  # fmt: skip
def test_quadratic_steps_are_found(text: str) -> None:
    assert growth(re.compile(text))[0] > LIMIT


TEXTS = [
    "P. S. a", "**a b** *c*", "#### \\frac{1}{2}, 3 ...", "<<a=1>>x \n\n- [b] (c1) a.b.",
    "aab 12+3= \"quoted.\" It's. The end", "```json\n{}\n```", "  1. x\n\n* y\n",
]  # fmt: skip


def test_the_counting_matcher_finds_what_re_finds() -> None:
    for name, (pattern, is_anchored) in found().items():
        for text in TEXTS:
            matches = pattern.finditer(text)
            wanted = [one.span() for one in matches if not is_anchored or one.start() == 0]
            spans = Steps(pattern, text, is_anchored).spans
            # Empty matches beside others: finditer has rules for these.
            shown = [[span for span in one if span[0] < span[1]] for one in (spans, wanted)]
            assert shown[0] == shown[1], (name, text)
