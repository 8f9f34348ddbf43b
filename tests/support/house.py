"""Measures of the code: lines by room, sizes of files and functions, and what parts ask of others.

python -m tests.support.house [FOLDER ...]        (default: src/rlhf_lab analysis benchmarks tests)
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from tests.test_packaging import ROOT

FOLDERS = ("src/rlhf_lab", "analysis", "benchmarks", "tests")
HEAD = ["room", "files", "lines", "median file", "functions", "mean function", "imports"]
# The options' classes end so, but for those of algorithms and corrections.
OPTIONS = ("Options", "Sampling", "Reward", "Model")


@dataclass(frozen=True)
class File:
    """A source file with its syntax tree."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def functions(self) -> list[int]:
        """The lines of every function, decorators left out."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = (node for node in ast.walk(self.tree) if isinstance(node, kinds))
        return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in found]

    @property
    def imports(self) -> int:
        """The lines of its imports."""
        nodes = (n for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom))
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)

    @property
    def protocols(self) -> int:
        """Protocols that are tested while the program runs."""
        classes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))
        return sum("runtime_checkable" in map(ast.unparse, node.decorator_list) for node in classes)

    def tests_of(self, *endings: str) -> int:
        """How often a value is tested for a class whose name ends so."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return sum(
            ast.unparse(call.func) == "isinstance"
            and any(name.endswith(endings) for name in names_in(call.args[1]))
            for call in calls
        )

    @property
    def getattr_defaults(self) -> int:
        """How often an attribute is read that may be absent."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return sum(ast.unparse(one.func) == "getattr" and len(one.args) == 3 for one in calls)


def names_in(node: ast.expr) -> list[str]:
    """The classes that an isinstance names."""
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def read(folder: Path) -> list[File]:
    """The Python files of a folder."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(File(path, len(text.splitlines()), ast.parse(text)))
    return found


def rows(folder: Path) -> Iterator[list[str]]:
    """A row for each room of a folder, and one for all of it."""
    files = read(folder)
    rooms: dict[str, list[File]] = {}
    for file in files:
        parts = file.path.relative_to(folder).parts
        rooms.setdefault(parts[0] if len(parts) > 1 else "(top)", []).append(file)
    for name, own in [*sorted(rooms.items()), ("all", files)]:
        lines, functions = [one.lines for one in own], [n for one in own for n in one.functions]
        yield [
            name,
            str(len(own)),
            f"{sum(lines):,}",
            f"{statistics.median(lines):.0f}",
            f"{len(functions):,}",
            f"{statistics.fmean(functions):.1f}" if functions else "",
            f"{sum(one.imports for one in own) / max(sum(lines), 1):.0%}",
        ]


def main(folders: Sequence[str]) -> int:
    """Print the tables."""
    console = Console(quiet=False)
    for folder in folders or FOLDERS:
        console.table(folder, HEAD, list(rows(ROOT / folder)))
    files = read(ROOT / FOLDERS[0])
    console.print(f"protocols tested at run time: {sum(one.protocols for one in files)}")
    options = sum(one.tests_of(*OPTIONS) for one in files)
    console.print(f"isinstance on classes of options: {options}")
    console.print(f"getattr with a default: {sum(one.getattr_defaults for one in files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
