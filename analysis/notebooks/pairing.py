"""Write notebooks from scripts in jupytext's percent format; only the scripts are edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import nbformat

FOLDER = Path(__file__).parent
HEADER = "# ---\n# jupyter:\n"


def scripts(folder: Path = FOLDER) -> list[Path]:
    """The scripts that are notebooks: those with a header."""
    every = sorted(folder.glob("*.py"))
    return [path for path in every if path.read_text(encoding="utf-8").startswith(HEADER)]


def notebook_of(script: Path) -> Any:
    """The notebook of a script, without outputs; cells are numbered, so that ids stay the same."""
    notebook = jupytext.read(script, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, start=1):
        cell["id"] = f"cell-{number:02d}"
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def notebook_text(script: Path) -> str:
    """The notebook as its file has it."""
    return f"{nbformat.writes(notebook_of(script))}\n"


def write(script: Path) -> Path:
    """Write the notebook beside its script; returns its path."""
    path = script.with_suffix(".ipynb")
    path.write_text(notebook_text(script), encoding="utf-8")
    return path
