"""A script in cells (percent format) as a notebook: the scripts are what is edited."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.types.errors import UserError

FOLDER = Path(__file__).parent
MARK = re.compile(r"^# %%( \[markdown\])?$")
HEADER = "# ---\n# jupyter:\n"
JUPYTEXT = {
    "formats": "ipynb,py:percent",
    "text_representation": {"extension": ".py", "format_name": "percent"},
}
METADATA: dict[str, Any] = {
    "jupytext": JUPYTEXT,
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class NotebookCell:
    """kind: markdown or code. text: without comment marks."""

    kind: str
    text: str


def scripts(folder: Path = FOLDER) -> list[Path]:
    """The scripts that are notebooks: those with a header."""
    found = sorted(folder.glob("*.py"))
    return [path for path in found if path.read_text(encoding="utf-8").startswith(HEADER)]


def cells_of(script: Path) -> list[NotebookCell]:
    """The cells of a script. Raises UserError if it has none."""
    found: list[tuple[str, list[str]]] = []
    for line in script.read_text(encoding="utf-8").splitlines():
        if mark := MARK.match(line):
            found.append(("markdown" if mark.group(1) else "code", []))
        elif found:
            found[-1][1].append(line)
    if not found:
        raise UserError(f"{script} has no cells: begin each with `# %%` or `# %% [markdown]`")
    return [NotebookCell(kind, plain(kind, lines)) for kind, lines in found]


def plain(kind: str, lines: list[str]) -> str:
    """A cell's text; prose without its comment marks."""
    if kind == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    return "\n".join(lines).strip("\n")


def notebook_of(script: Path) -> dict[str, Any]:
    """The notebook of a script (nbformat 4.5), without outputs."""
    made = []
    for number, cell in enumerate(cells_of(script), start=1):
        own: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number:02d}", "metadata": {}}
        if cell.kind == "code":
            own |= {"execution_count": None, "outputs": []}
        made.append(own | {"source": cell.text.splitlines(keepends=True)})
    return {"cells": made, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def write(script: Path) -> Path:
    """Write the notebook beside its script; returns its path."""
    path = script.with_suffix(".ipynb")
    text = json.dumps(notebook_of(script), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path
