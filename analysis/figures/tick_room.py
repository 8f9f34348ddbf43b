"""Ticks whose labels do not touch, however narrow a panel is and however long they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rlhf_lab_analysis.figures.style import TICKS

# The width of a digit and the least space between two labels, as shares of the letters' size. A
# point is narrower than a digit by more than a minus is wider.
DIGIT, SPACE = 0.64, 0.5


class RoomyLocator(MaxNLocator):
    """Round ticks of an x-axis, at most TICKS steps, and fewer where labels would touch. The room
    is known when the figure is drawn, since names of rows take their part of it."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Ticks of the most steps that there is room for; a single one if two have none."""
        for steps in range(TICKS, -1, -1):
            self.set_params(nbins=max(1, steps), min_n_ticks=2 if steps else 1)
            values = super().tick_values(vmin, vmax)
            if self._is_roomy(np.asarray(values), (vmin, vmax)):
                break
        return values

    def _is_roomy(self, values: NDArray[np.float64], view: tuple[float, float]) -> bool:
        axis: Any = self.axis
        low, high = sorted(view)
        seen = values[(values >= low) & (values <= high)]
        size = axis.get_major_ticks(1)[0].label1.get_fontsize()
        texts = axis.get_major_formatter().format_ticks(seen)
        points = axis.axes.bbox.width / axis.axes.figure.dpi * 72
        spaces = np.diff(seen) / (high - low) * points
        return all(
            space >= size * (DIGIT * (len(one) + len(other)) / 2 + SPACE)
            for space, (one, other) in zip(spaces, pairwise(texts), strict=True)
        )


def roomy_ticks(axes: Axes) -> None:
    """Ticks along x as there is room for their labels."""
    axes.xaxis.set_major_locator(RoomyLocator(TICKS))
