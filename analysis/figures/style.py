"""Style of figures for a paper: column widths and fonts, and files that are equal bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rlhf_lab.types.errors import UserError

# Inches: one column of a paper of two, and the whole page.
SINGLE, DOUBLE = 3.3, 6.8
ROW, SMALL_ROW = 1.9, 1.45
GREY = "#767676"
TICKS = 5
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.labelsize": 7,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    # Ends of lines are ends of intervals.
    "lines.solid_capstyle": "butt",
    "lines.markersize": 3.6,
    "figure.constrained_layout.use": True,
    # Letters that can be searched and edited in PDF, PostScript and SVG.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    # Names of conditions may have dollars, which are no mathematics.
    "text.parse_math": False,
    "svg.hashsalt": "rlhf_lab",
    "savefig.dpi": 200,
}
# What would put the date or the tool into a file.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


@contextmanager
def on_paper() -> Iterator[None]:
    """Everything that is drawn inside looks like a paper's figure."""
    with matplotlib.rc_context(RC):
        yield


def page(
    rows: int = 1,
    columns: int = 1,
    width: float = DOUBLE,
    height: float | Sequence[float] = ROW,
    **share: Any,
) -> tuple[Figure, NDArray[np.object_]]:
    """A figure and its axes (rows, columns). height: inches of a row, or of each. Inside of
    `on_paper`."""
    heights = [height] * rows if isinstance(height, int | float) else list(height)
    figure = Figure(figsize=(width, 0.45 + sum(heights)))
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights, **share)
    for panel in axes.flat:
        panel.xaxis.set_major_locator(MaxNLocator(TICKS))
    return figure, axes


def plain(text: str) -> str:
    """A name as a label: on one line, and not taken for one that a legend leaves out."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return f" {line}" if line.startswith("_") else line


def ticks(
    axes: Axes, values: Sequence[float], which: str = "x", between: Sequence[float] = ()
) -> None:
    """Ticks at these values, written as plain numbers, and minor ones without a number at those
    between; none elsewhere."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(list(values), [f"{value:g}" for value in values])
    axis.set_ticks(list(between), [""] * len(between), minor=True)


def write(figure: Figure, path: Path, formats: Sequence[str]) -> list[Path]:
    """Write path.png and so on; the same figure gives the same bytes.

    Raises UserError for an unknown format.
    """
    if unknown := [kind for kind in formats if kind not in METADATA]:
        raise UserError(f"--formats {','.join(unknown)}: choose from {','.join(METADATA)}")
    written = []
    with on_paper():
        for kind in formats:
            file = path.with_name(f"{path.name}.{kind}")
            figure.savefig(file, format=kind, metadata=METADATA[kind])
            written.append(file)
    return written
