"""Write notebooks from scripts in jupytext's percent format: beside the script without outputs,
and run, with outputs, into another folder. Only the scripts are edited."""

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


def executed(notebook: Any) -> Any:
    """The same with the outputs of its cells. Raises nbclient's error for a cell that fails."""
    from nbclient import NotebookClient

    client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False)
    client.execute(cwd=str(FOLDER))
    # Streams are of this machine.
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"] = [one for one in cell["outputs"] if one.output_type != "stream"]
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def write(script: Path, folder: Path | None) -> Path:
    """Write the notebook beside its script, and where a folder is given, run it and write it with
    outputs into that one; returns the last path."""
    notebook, path = notebook_of(script), script.with_suffix(".ipynb")
    path.write_text(f"{nbformat.writes(notebook)}\n", encoding="utf-8")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / path.name
        path.write_text(f"{nbformat.writes(executed(notebook))}\n", encoding="utf-8")
    return path
