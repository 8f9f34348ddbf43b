"""A timeline as a page, whose lanes can be zoomed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from rlhf_lab.runs.timeline import SECONDS, Interval, LaneSpan, has_pauses, lanes, visible, wall
from rlhf_lab.runs.timeline_svg import IDLE_LABEL, chart, phase_colours, version_colours

PAGE = Path(__file__).with_name("timeline_page.html")


def html(
    spans: Sequence[LaneSpan], title: str, window: Interval | None = None, unit: str = SECONDS
) -> str:
    """A page that needs nothing else; window: the seconds that are shown, all without it. unit: of
    them."""
    window = window or (0.0, wall(spans))
    first, *rest = title.splitlines() or [""]
    phases = phase_colours(has_pauses(spans))
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        name=escape(first),
        heading="\n".join([f"<h1>{escape(first)}</h1>", *(f"<p>{escape(r)}</p>" for r in rest)]),
        lanes="".join(f"<div>{escape(name)}</div>" for name in ["", *lanes(spans)]),
        chart=chart(spans, window, first, unit=unit),
        phases=swatches(phases) + f'<span><i class="hatched"></i>{IDLE_LABEL}</span>',
        versions=swatches(version_colours(visible(spans, window))),
    )


def swatches(colours: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<span><i style="background:{colour}"></i>{escape(label)}</span>'
        for label, colour in colours
    )
