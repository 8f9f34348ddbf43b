"""Train the tracked benchmark anew, keep its tables, and draw what pages show of them.

python -m benchmarks.tracked FOLDER [--launcher joblib] | --pages
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.benchmark.kept import COLLAPSES, TABLES

RUNS = Path(__file__).with_name("tracked.yaml")
FIGURES = Path("docs/figures")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.tracked", description=__doc__)
    found.add_argument("folder", type=Path, nargs="?", help="where the runs go")
    found.add_argument("--launcher", default="joblib", help="of sweeps that may share a machine")
    found.add_argument("--pages", action="store_true", help="of the kept tables: train nothing")
    return found


def commands(folder: Path, launcher: str) -> Iterator[list[str]]:
    """The arguments of Python for each step, in order. folder: of the runs; those that are to
    collapse lie beside it."""
    jobs = yaml.safe_load(RUNS.read_text(encoding="utf-8"))
    fallen = folder.with_name(f"{folder.name}_collapses")
    yield ["-m", "rlhf_lab_analysis.benchmark", "--cost"]
    for part, root, tables in (("runs", folder, TABLES), ("collapses", fallen, COLLAPSES)):
        begun: set[str] = set()
        for line in jobs[part]:
            command, name, *given = shlex.split(line)
            if command == "sweep":
                chosen = () if any(word.startswith("launcher=") for word in given) else (launcher,)
                given += [f"output.root={root}", *(f"launcher={one}" for one in chosen)]
                given += ["extend=true"] if name in begun else []
                begun.add(name)
            yield ["-m", "rlhf_lab.cli.main", command, name, *given]
        yield ["-m", "rlhf_lab_analysis.benchmark", "--tables", str(tables), str(root)]


def pages() -> Iterator[list[str]]:
    """The same for the figures of docs/benchmark.md and for docs/warnings.md."""
    picture, losses = FIGURES / "hero_timeline.png", ["--only", "fig4_losses", "--formats", "png"]
    yield ["-m", "rlhf_lab_analysis.benchmark", "--picture", str(picture)]
    yield ["-m", "rlhf_lab.cli.main", "figures", str(TABLES), *losses, "--out", str(FIGURES)]
    yield ["-m", "benchmarks.pages.early_warning", "--docs", "docs/warnings.md"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; ends with the first command that fails; repeated, it continues there."""
    given = parser().parse_args(arguments)
    if not given.pages and given.folder is None:
        parser().error("pass the folder of the runs, or --pages")
    console = Console(quiet=False)
    steps = [] if given.pages else [*commands(given.folder, given.launcher)]
    for step in (*steps, *pages()):
        console.print(shlex.join(["python", *step]))
        if code := subprocess.run([sys.executable, *step], check=False).returncode:
            return code
    (FIGURES / "fig4_losses.csv").unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
