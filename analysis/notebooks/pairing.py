"""Write notebooks, with outputs, from scripts in jupytext's percent format. Only the scripts are
edited."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jupytext
import nbformat

FOLDER = Path(__file__).parent
BENCHMARK = FOLDER.parent / "benchmark" / "tables.parquet"
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


def executed(notebook: Any) -> Any:
    """The same with the outputs of its cells. Raises nbclient's error for a cell that fails."""
    from nbclient import NotebookClient

    client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False)
    client.execute(cwd=str(FOLDER))
    for cell in notebook.cells:
        # Names of displays are drawn at random, and streams are of this machine.
        for output in cell.get("outputs", ()):
            output.pop("transient", None)
        if cell.cell_type == "code":
            cell["outputs"] = [one for one in cell["outputs"] if one.output_type != "stream"]
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["tables_sha256"] = tables_digest()
    return notebook


def tables_digest() -> str:
    """Of the tracked tables that stored outputs show."""
    return hashlib.sha256(BENCHMARK.read_bytes()).hexdigest()


def write(script: Path) -> Path:
    """Write the notebook beside its script, with outputs; returns its path."""
    path = script.with_suffix(".ipynb")
    text = nbformat.writes(executed(notebook_of(script)))
    path.write_text(f"{text}\n", encoding="utf-8")
    return path
