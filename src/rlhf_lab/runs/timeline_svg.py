"""A timeline as inline SVG: a row for each lane, a tooltip at each span.

Each version of the weights has a hue, each phase a shade.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from rlhf_lab.runs.timeline import (
    PAUSED,
    SECONDS,
    WAITING,
    Interval,
    LaneSpan,
    idle,
    lanes,
    round_starts,
    visible,
    wall,
)

# tab10 without its grey, the colour of idle time.
PALETTE = (
    "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #3949ab #bcbd22 #17becf"
).split()
# Share of white (above zero) or black (below) that is mixed into a version's colour.
SHADES = {"generate": 0.0, "score": 0.55, "reference": -0.18, "update": -0.42}
OTHER = "#6b7280"
PAUSE = "#c3c8d0"
OTHER_LABEL = "sync, probe, track, save, checkpoint"
PAUSED_LABEL = "paused while the trainer trains"
IDLE_LABEL = "idle or waiting"
# Pixels; the pages that show a timeline have the same heights.
LANE = 34
MARGIN = 22
BAR = LANE - 6


def colour(span: LaneSpan) -> str:
    """The colour of the version, lighter or darker by phase; grey for what neither makes, a
    lighter one for pauses."""
    if span.phase == PAUSED:
        return PAUSE
    if span.phase not in SHADES:
        return OTHER
    return shaded(PALETTE[span.version % len(PALETTE)], SHADES[span.phase])


def shaded(colour: str, share: float) -> str:
    target = 255 if share > 0 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    mixed = [round(part + (target - part) * abs(share)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def phase_colours(has_pauses: bool = False) -> list[tuple[str, str]]:
    """Labels and colours of the phases for a legend, in the colour of version 0; of pauses where
    there are any."""
    phases = [(phase, shaded(PALETTE[0], share)) for phase, share in SHADES.items()]
    pauses = [(PAUSED_LABEL, PAUSE)] if has_pauses else []
    return [*phases, (OTHER_LABEL, OTHER), *pauses]


def version_colours(spans: Sequence[LaneSpan]) -> list[tuple[str, str]]:
    """Labels and colours of the versions at work; those that share a colour share a line."""
    versions = sorted({span.version for span in spans if span.phase in SHADES})
    alike: dict[int, list[int]] = {}
    for version in versions:
        alike.setdefault(version % len(PALETTE), []).append(version)
    return [
        (
            ", ".join(f"v{version}" for version in same[:2]) + (" …" if same[2:] else ""),
            PALETTE[key],
        )
        for key, same in alike.items()
    ]


def chart(
    spans: Sequence[LaneSpan],
    window: Interval,
    label: str = "",
    pattern: str = "idle",
    is_cut: bool = False,
    unit: str = SECONDS,
) -> str:
    """The lanes as SVG. Its x axis is in percent, so that its width alone sets the zoom. label: its
    text for readers who do not see it. pattern: the id of the hatching, once in a page. is_cut:
    whether lanes worked after their last span, so that they were not idle then. unit: of its
    seconds."""
    rows = {lane: MARGIN + LANE * number for number, lane in enumerate(lanes(spans))}
    height, hatching = MARGIN * 2 + LANE * len(rows), f"url(#{pattern})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="spans" height="{height}" role="img" '
        f'aria-label="{escape(label)}">',
        f'<defs><pattern id="{pattern}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6"/><path d="M3 0V6"/></pattern>'
        "</defs>",
        *marks(spans, window, height, unit),
    ]
    # After the last span nothing is known, not even that lanes were idle.
    known = (window[0], min(window[1], wall(spans)))
    for lane, gaps in idle(spans, known).items():
        last = max(span.end for span in spans if span.lane == lane)
        for start, end in gaps:
            if is_cut and start >= last:
                continue
            text = f"{IDLE_LABEL}\n{times((start, end), unit)}"
            place: tuple[float, float] = (rows[lane], BAR)
            parts.append(rectangle("gap", hatching, (start, end), place, window, text))
    for span in visible(spans, window):
        fill = hatching if span.phase == WAITING else colour(span)
        interval, thickness = (span.start, span.end), BAR / span.rows
        place = (rows[span.lane] + span.row * thickness, thickness)
        parts.append(rectangle("span", fill, interval, place, window, tooltip(span, unit)))
    return "\n".join([*parts, "</svg>"])


def tooltip(span: LaneSpan, unit: str = SECONDS) -> str:
    chunk = "" if span.chunk is None else f"\nchunk {span.chunk}"
    return (
        f"{span.phase}\nround {span.round}\nversion {span.version}{chunk}\n"
        f"{times((span.start, span.end), unit)}"
    )


def times(interval: Interval, unit: str) -> str:
    """Begin and duration of something."""
    start, seconds = interval[0], interval[1] - interval[0]
    lasts = f"{1000 * seconds:.1f} ms" if unit == SECONDS else f"{seconds:.3f} {unit}"
    return f"start {start:.3f} {unit}\n{lasts}"


def percent(at: float, window: Interval) -> str:
    return f"{100 * (at - window[0]) / (window[1] - window[0]):.5f}%"


def rectangle(
    kind: str,
    fill: str,
    interval: Interval,
    place: tuple[float, float],
    window: Interval,
    text: str,
) -> str:
    """place: the upper edge of the lane, or of a row in it, and the height, in pixels."""
    width = percent(window[0] + interval[1] - interval[0], window)
    y, height = place
    return (
        f'<rect class="{kind}" fill="{fill}" x="{percent(interval[0], window)}" y="{y + 3:g}" '
        f'width="{width}" height="{height:.4g}"><title>{escape(text)}</title></rect>'
    )


def marks(spans: Sequence[LaneSpan], window: Interval, height: int, unit: str) -> list[str]:
    """Rounds above the lanes, seconds below them; more seconds when one looks closely."""
    parts = []
    for number, at in round_starts(spans, window).items():
        x = percent(at, window)
        parts.append(f'<line x1="{x}" x2="{x}" y1="4" y2="{height - MARGIN}"/>')
        parts.append(f'<text x="{x}" dx="3" y="14">round {number}</text>')
    step = tick_step(window[1] - window[0])
    for number in range(math.ceil(10 * window[0] / step), math.ceil(10 * window[1] / step)):
        x, kind = percent(number * step / 10, window), "fine" if number % 10 else "coarse"
        label = f"{number * step / 10:.6g} {unit}"
        parts.append(f'<text class="{kind}" x="{x}" y="{height - 6}">{label}</text>')
    return parts


def tick_step(seconds: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most ten steps fit."""
    power = 10.0 ** math.floor(math.log10(seconds / 10))
    return next(power * times for times in (1, 2, 5, 10, 20) if power * times * 10 >= seconds)
