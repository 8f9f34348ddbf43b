"""A timeline as a picture: one row of bars for each lane, by matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlhf_lab.runs.timeline import (
    SECONDS,
    WAITING,
    Interval,
    LaneSpan,
    has_pauses,
    idle,
    lanes,
    round_starts,
    visible,
    wall,
)
from rlhf_lab.runs.timeline_svg import (
    IDLE_LABEL,
    colour,
    phase_colours,
    version_colours,
)
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HATCHED: dict[str, Any] = {
    "facecolor": "#f0f0f0",
    "edgecolor": "#a8a8a8",
    "hatch": "/////",
    "linewidth": 0,
}


def figure(
    spans: Sequence[LaneSpan], title: str, window: Interval | None = None, unit: str = SECONDS
) -> Figure:
    """A lane a line; window: the seconds that are shown, all of them without it. unit: of them."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "the PNG needs the package matplotlib: pip install 'rlhf-lab[analysis]'"
        ) from error
    window = window or (0.0, wall(spans))
    order = lanes(spans)
    picture = Figure(figsize=(14, 2.1 + 0.55 * len(order)), layout="constrained")
    axes = picture.subplots()
    draw_bars(axes, spans, window)
    axes.set_xlim(*window)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel(f"{'seconds' if unit == SECONDS else 'virtual seconds'} since the run began")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    starts = round_starts(spans, window)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(starts.values()), [f"round {number}" for number in starts])
    above.tick_params(labelsize="x-small", length=3, colors="#555555")
    above.spines["top"].set_visible(False)
    for at in starts.values():
        axes.axvline(at, color="#555555", linewidth=0.5, linestyle=":", zorder=0)
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, 150)]
    picture.suptitle("\n".join(lines).replace("$", r"\$"), fontsize="medium")
    draw_legends(picture, visible(spans, window))
    return picture


def draw_bars(axes: Axes, spans: Sequence[LaneSpan], window: Interval) -> None:
    """Idle time hatched, work in its colours with the round's number where there is room."""
    rows = {lane: number for number, lane in enumerate(lanes(spans))}
    for lane, gaps in idle(spans, window).items():
        bars = [(start, end - start) for start, end in gaps]
        axes.broken_barh(bars, (rows[lane] - 0.4, 0.8), **HATCHED)
    work = [span for span in visible(spans, window) if span.phase != WAITING]
    axes.barh(
        [rows[span.lane] - 0.4 + 0.8 * (span.row + 0.5) / span.rows for span in work],
        [span.seconds for span in work],
        left=[span.start for span in work],
        height=[0.8 / span.rows for span in work],
        color=[colour(span) for span in work],
        edgecolor="white",
        linewidth=0.3,
    )
    for span in work:
        start, end = max(span.start, window[0]), min(span.end, window[1])
        is_labelled = span.rows == 1 and span.phase in ("generate", "update")
        if is_labelled and end - start > 0.018 * (window[1] - window[0]):
            middle, row = (start + end) / 2, rows[span.lane]
            axes.text(
                middle, row, str(span.round), ha="center", va="center", color="white", fontsize=8
            )


def draw_legends(picture: Figure, seen: Sequence[LaneSpan]) -> None:
    """Phases on the left, versions on the right, below the lanes."""
    from matplotlib.patches import Patch

    phases = [Patch(color=colour, label=label) for label, colour in phase_colours(has_pauses(seen))]
    phases.append(Patch(label=IDLE_LABEL, **HATCHED))
    versions = [Patch(color=colour, label=label) for label, colour in version_colours(seen)]
    small: dict[str, Any] = {"frameon": False, "fontsize": "small", "title_fontsize": "small"}
    picture.legend(
        handles=phases, loc="outside lower left", ncols=3, title="phase (numbers: round)", **small
    )
    picture.legend(
        handles=versions,
        loc="outside lower right",
        ncols=5,
        title="colour: version of the weights at work",
        **small,
    )
