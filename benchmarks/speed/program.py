"""Run `rlhf-lab` in processes of its own, and report what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.markdown import Table


def command(*words: str) -> list[str]:
    """`rlhf-lab WORDS`, by the Python of this process."""
    return [sys.executable, "-m", "rlhf_lab.cli.main", *words]


def run(*words: str) -> None:
    """Run `rlhf-lab WORDS` to its end. Raises CalledProcessError if it fails."""
    subprocess.run(command(*words), check=True)


def report(table: Table, path: Path, console: Console) -> None:
    """Print a table, and write its rows as JSON."""
    console.table(table.title, table.columns, table.rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    console.print(f"wrote {path}")
