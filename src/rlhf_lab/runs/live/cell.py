"""The display of a run in a notebook: one output of the cell, replaced in place.

rich's own Live takes in whatever the cell prints meanwhile, and needs ipywidgets.
"""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import rich.console
from rich.jupyter import JUPYTER_HTML_FORMAT


class CellScreen:
    """Has what is used of rich's Live. width: of the output, in characters."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._handle: Any = None

    def __enter__(self) -> CellScreen:
        return self

    def __exit__(self, *_: object) -> None:
        """The last picture stays in the cell."""

    def update(self, picture: rich.console.RenderableType, refresh: bool) -> None:
        """Replace the output. refresh: at once, as is done in any case."""
        # IPython is there where this is called, and has no types.
        display: Any = import_module("IPython.display").display
        forms = self._forms(picture)
        if self._handle is None:
            self._handle = display(forms, raw=True, display_id=True)
        else:
            self._handle.update(forms, raw=True)

    def _forms(self, picture: rich.console.RenderableType) -> dict[str, str]:
        """The picture as HTML and, for readers of the saved notebook, as text."""
        paper = rich.console.Console(
            record=True, file=io.StringIO(), width=self._width, force_jupyter=False, highlight=False
        )
        paper.print(picture)
        return {
            "text/plain": paper.export_text(clear=False),
            "text/html": paper.export_html(code_format=JUPYTER_HTML_FORMAT, inline_styles=True),
        }
