"""Small faults put into the code at random: does the suite find them?

    python -m tests.support.mutants --number 40 --seed 1 --out table.csv

`make coverage` comes first. A fault is put where at least one test runs the line. Of the tests that
run it, those of the module's own file go first, and then the cheapest, up to a limit of seconds. A
fault that none of these finds survives. `--faults table.csv` takes the faults that a table has as
found in place of random ones: what one suite found, a later one has to find too.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import itertools
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "src",
    "analysis",
    "benchmarks",
    "conf",
    "sweeps",
    "tests",
    "docs",
    "examples",
    "pyproject.toml",
    "Makefile",
    "README.md",
)
COMPARISONS: dict[type[ast.cmpop], str] = {
    **{ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"},
}
FORKED: Any = multiprocessing.get_context("fork")
# What takes seconds to import. Faults are in none of it.
PRELOAD = (
    *("torch", "torch._dynamo", "transformers", "hydra", "hydra.main", "hypothesis", "yaml"),
    *("pandas", "scipy.stats", "scipy.optimize", "matplotlib.pyplot", "pytest", "deepspeed"),
)
# Read when these are imported; tests/conftest.py says why.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}
MOST_TESTS = 200
MOST_SECONDS = 30
"""Of the tests that are tried with one fault, without coverage."""
LIMIT = 150
"""Seconds after which tests count as failed: the fault may be a loop without end."""
MOST_BYTES = 16 << 30
"""Of a process of tests, for the same reason."""
OPERATIONS: dict[type[ast.operator], str] = {
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"},
}


@dataclass(frozen=True)
class Fault:
    """A replacement of a stretch of a line."""

    file: str
    line: int
    begin: int
    """Bytes of the line before the stretch; `end` is behind it."""
    end: int
    new: str
    old: str = ""
    found_by: str = ""
    """The test that failed, or nothing."""

    def of(self, source: str) -> str:
        """The file's text with the fault."""
        lines = source.encode().splitlines(keepends=True)
        before = lines[self.line - 1]
        lines[self.line - 1] = before[: self.begin] + self.new.encode() + before[self.end :]
        return b"".join(lines).decode()


def faults_of(source: str, file: str) -> Iterator[Fault]:
    """Every fault that one replacement in a function's body makes."""
    tree = ast.parse(source)
    lines = source.encode().splitlines()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node for f in ast.walk(tree) if isinstance(f, functions) for node in f.body]
    seen = set()
    for node in (inner for statement in bodies for inner in _walk(statement)):
        for begin, end, new in _replacements(node, lines):
            if begin[0] == end[0] and (begin, end, new) not in seen:
                seen.add((begin, end, new))
                old = lines[begin[0] - 1][begin[1] : end[1]].decode()
                yield Fault(file, begin[0], begin[1], end[1], new, old)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in f-strings, whose places Python 3.11 does not know."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


Position = tuple[int, int]


def _replacements(
    node: ast.AST, lines: Sequence[bytes]
) -> Iterator[tuple[Position, Position, str]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield (*_between(left, right), f" {COMPARISONS[type(operator)]} ")
        case ast.BinOp(left=left, op=operator, right=right) if _is_arithmetic(node):
            yield (*_between(left, right), f" {OPERATIONS[type(operator)]} ")
        case ast.BoolOp(op=operator, values=[*_, left, right]):
            yield (*_between(left, right), " or " if isinstance(operator, ast.And) else " and ")
        case ast.Constant(value=bool() as value):
            yield _begin(node), _end(node), str(not value)
        case ast.Constant(value=int() | float() as value):
            yield _begin(node), _end(node), f"({value} + 1)"
        case ast.If(test=test) | ast.IfExp(test=test):
            text = lines[test.lineno - 1][test.col_offset : test.end_col_offset].decode()
            yield _begin(test), _end(test), f"(not ({text}))"
        case ast.Return(value=ast.Call() as value):
            yield _begin(value), _end(value), "None"


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Not of texts, whose difference is an error that says nothing about the tests."""
    sides = (node.left, node.right)
    is_text = any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )
    return type(node.op) in OPERATIONS and not is_text


def _begin(node: ast.AST) -> Position:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> Position:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _between(left: ast.expr, right: ast.expr) -> tuple[Position, Position]:
    """The operator between two operands. With brackets between them, the result is no Python."""
    return _end(left), _begin(right)


class Suite:
    """The tests that run each line, by `make coverage`, and their seconds, by its table."""

    def __init__(self, coverage: Path, seconds: Path) -> None:
        self.data = CoverageData(str(coverage))
        self.data.read()
        measured = [Path(name) for name in self.data.measured_files()]
        self.files = sorted(
            path.relative_to(ROOT).as_posix()
            for path in measured
            if path.is_relative_to(ROOT) and path.suffix == ".py"
        )
        self.seconds: dict[str, float] = defaultdict(float)
        with seconds.open(newline="") as file:
            for row in csv.DictReader(file):
                test = row["test"].partition("[")[0].partition("@")[0]
                self.seconds[test] += float(row["wall_seconds"])

    def tests_of(self, fault: Fault) -> list[str]:
        """The tests that are tried with a fault, in their order."""
        near = f"test_{Path(fault.file).stem}.py"
        tests = self._tests_by_line(fault.file).get(fault.line, [])
        tests = sorted(tests, key=lambda test: (near not in test, self.seconds[test], test))
        sums = itertools.accumulate(self.seconds[test] for test in tests)
        is_taken = [sum_ < MOST_SECONDS for sum_ in sums]
        return [test for test, taken in zip(tests, is_taken, strict=True) if taken][:MOST_TESTS]

    def draw(self, seed: int) -> Iterator[Fault]:
        """Faults without repetition: first a file, by its number of lines, and then one of its."""
        rng = random.Random(seed)
        sizes = [len((ROOT / file).read_bytes().splitlines()) for file in self.files]
        drawn = set()
        while True:
            (file,) = rng.choices(self.files, sizes)
            source = (ROOT / file).read_text()
            tests = self._tests_by_line(file)
            faults = [fault for fault in faults_of(source, file) if fault.line in tests]
            fault = rng.choice(faults) if faults else None
            if fault and fault not in drawn and _is_python(fault.of(source)):
                drawn.add(fault)
                yield fault

    def _tests_by_line(self, file: str) -> dict[int, list[str]]:
        """Without lines that are run at import alone."""
        contexts = self.data.contexts_by_lineno(str(ROOT / file))
        known = {
            line: [test for test in tests if test in self.seconds]
            for line, tests in contexts.items()
        }
        return {line: tests for line, tests in known.items() if tests}


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


class Checkout:
    """A copy of the project's files, in which faults are tried one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, symlinks=True)
            else:
                shutil.copy2(source, folder / name)

    def failing(self, tests: Sequence[str]) -> str:
        """The first of these tests that fails, or nothing."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"
            process = FORKED.Process(target=run_tests, args=(self.folder, output, tuple(tests)))
            process.start()
            process.join(LIMIT)
            if process.is_alive():
                os.killpg(process.pid, signal.SIGKILL)
                process.join()
                return f"still at work after {LIMIT} s"
            text = output.read_text()
        code = process.exitcode
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[|@| |$)", text, re.MULTILINE)
        if code and code > 0 and not failed:
            raise RuntimeError(f"no test failed, and pytest ended with {code}: {text}")
        return "" if code == 0 else failed[1] if failed else f"killed by signal {-code}"

    def try_out(self, fault: Fault, tests: Sequence[str]) -> Fault:
        """The fault with the test that finds it: one that fails with it, and passes without it."""
        while tests:
            found_by = self._failing_with(fault, tests)
            if "::" not in found_by or not self.failing([found_by]):
                return replace(fault, found_by=found_by)
            # It needs what a copy has not, such as the history of the repository.
            tests = [test for test in tests if test != found_by]
        return fault

    def _failing_with(self, fault: Fault, tests: Sequence[str]) -> str:
        path = self.folder / fault.file
        times = path.stat()
        source = path.read_text()
        path.write_text(fault.of(source))
        # Python compiles a file anew when its time has changed.
        os.utime(path, (times.st_atime, times.st_mtime + 2 + fault.line))
        try:
            return self.failing(tests)
        finally:
            path.write_text(source)
            os.utime(path, (times.st_atime, times.st_mtime))


def run_tests(folder: Path, output: Path, tests: Sequence[str]) -> None:
    """In a process that has the packages of others imported, and of a checkout nothing yet."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(folder)
    paths = [str(folder), str(folder / "src")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:0] = paths
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    flags = ["-x", "-q", "--no-header", "-rfE", "-p", "no:cacheprovider"]
    # Some of these packages are plugins of pytest, whose assertions nobody reads.
    flags += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    sys.exit(pytest.main([*flags, *tests]))


def faults_in(table: Path) -> list[Fault]:
    """The faults of a table that were found."""
    with table.open(newline="") as file:
        return [
            Fault(
                *(row["file"], int(row["line"]), int(row["begin"]), int(row["end"])),
                *(row["new"], row["old"]),
            )
            for row in csv.DictReader(file)
            if row["found_by"]
        ]


def run(faults: Iterator[Fault], suite: Suite, number: int, jobs: int) -> Iterator[Fault]:
    """Try faults, so many at a time, until so many are found or there are no more."""
    found = 0
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(jobs, FORKED) as pool:
        checkouts = [Checkout(Path(folder) / str(job)) for job in range(jobs)]
        while found < number and (batch := list(itertools.islice(faults, jobs))):
            tests = [suite.tests_of(fault) for fault in batch]
            for fault in pool.map(Checkout.try_out, checkouts[: len(batch)], batch, tests):
                found += bool(fault.found_by)
                yield fault


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=40, help="of faults to be found (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=Path, help="try those that this table has as found")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (2)")
    parser.add_argument("--out", type=Path, default=Path("mutants.csv"))
    options = parser.parse_args()
    os.environ |= ENVIRONMENT
    for package in PRELOAD:
        importlib.import_module(package)
    suite = Suite(ROOT / ".coverage", ROOT / ".test-seconds.csv")
    faults = iter(faults_in(options.faults)) if options.faults else suite.draw(options.seed)
    tried = []
    for fault in run(faults, suite, options.number, options.jobs):
        tried.append(fault)
        change = f"{fault.file}:{fault.line}: {fault.old!r} -> {fault.new!r}"
        sys.stdout.write(f"{change}: {fault.found_by or 'survives'}\n")
        sys.stdout.flush()
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Fault)])
        writer.writeheader()
        writer.writerows(map(asdict, tried))
    found = sum(bool(fault.found_by) for fault in tried)
    sys.stdout.write(f"{found} of {len(tried)} faults were found; {options.out} has them\n")


if __name__ == "__main__":
    main()
