"""`rlhf-lab timeline`: who worked when, and who waited, as a picture and as a page."""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINER = "trainer"
WAITING = "take"
MOST_SPANS = 200
MIDDLE_ROUNDS = 12

# tab10 without its grey, which is kept for idle time.
PALETTE = (
    "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #3949ab #bcbd22 #17becf"
).split()
# Share of white (above zero) or black (below) that is mixed into a version's colour.
SHADES = {"generate": 0.0, "score": 0.55, "reference": -0.18, "update": -0.42}
OTHER = "#6b7280"
OTHER_LABEL = "sync, probe, track, save, checkpoint"
IDLE_LABEL = "idle or waiting"

Interval = tuple[float, float]


@dataclass(frozen=True)
class Span:
    """What a lane did from start to end, in seconds since the run began."""

    lane: str
    phase: str
    start: float
    end: float
    round: int
    version: int
    chunk: int | None = None


def spans(folder: Path) -> list[Span]:
    """The spans of a run in the order of its file. Raises UserError if there are none to draw."""
    path = folder / TIMELINE
    if not path.is_file():
        raise UserError(
            f"{folder} has no {TIMELINE}: name a run that `rlhf-lab train` made "
            "(`rlhf-lab runs` lists them)"
        )
    found = [span(row, path, n) for n, row in enumerate(read_rows(path), start=1)]
    if not found or wall(found) <= 0:
        raise UserError(f"{path} holds no time yet: draw it when the first round is over")
    return found


def span(row: Mapping[str, Any], path: Path, number: int) -> Span:
    """A row as a span. Raises Unreadable if it ends before it begins."""
    if row["end"] < row["start"]:
        reason = f"it is less than start={row['start']!r}: delete the line to draw the others"
        raise Unreadable(path, reason, f"line {number} key end")
    known: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Span)}
    return Span(**known)


def wall(spans: Sequence[Span]) -> float:
    """Seconds from the run's beginning to the end of its last span."""
    return max(span.end for span in spans)


def lanes(spans: Sequence[Span]) -> list[str]:
    """The trainer, then the generators by number."""
    names = {span.lane for span in spans}
    return sorted(names, key=lambda lane: (lane != TRAINER, len(lane), lane))


def idle(spans: Sequence[Span], window: Interval) -> dict[str, list[Interval]]:
    """Per lane, the parts of the window in which nothing but waiting is recorded."""
    gaps: dict[str, list[Interval]] = {lane: [] for lane in lanes(spans)}
    reached = dict.fromkeys(gaps, window[0])
    for span in sorted(spans, key=lambda span: span.start):
        if span.phase == WAITING:
            continue
        start = min(span.start, window[1])
        if start > reached[span.lane]:
            gaps[span.lane].append((reached[span.lane], start))
        reached[span.lane] = max(reached[span.lane], min(span.end, window[1]))
    for lane, end in reached.items():
        if end < window[1]:
            gaps[lane].append((end, window[1]))
    return gaps


def idle_shares(spans: Sequence[Span]) -> dict[str, float]:
    """Per lane, the share of the run's wall-clock in which it did nothing but wait."""
    total = wall(spans)
    return {
        lane: sum(end - start for start, end in gaps) / total
        for lane, gaps in idle(spans, (0.0, total)).items()
    }


def colour(span: Span) -> str:
    """The colour of the version, lighter or darker by phase; grey for what neither makes."""
    if span.phase not in SHADES:
        return OTHER
    return shaded(PALETTE[span.version % len(PALETTE)], SHADES[span.phase])


def shaded(colour: str, share: float) -> str:
    target = 255 if share > 0 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    mixed = [round(part + (target - part) * abs(share)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def phase_colours() -> list[tuple[str, str]]:
    """Labels and colours of the phases for a legend, in the colour of version 0."""
    return [(phase, shaded(PALETTE[0], share)) for phase, share in SHADES.items()]


def version_colours(spans: Sequence[Span]) -> list[tuple[str, str]]:
    """Labels and colours of the versions at work; those that share a colour share a line."""
    versions = sorted({span.version for span in spans if span.phase in SHADES})
    alike: dict[int, list[int]] = {}
    for version in versions:
        alike.setdefault(version % len(PALETTE), []).append(version)
    return [
        (f"v{found[0]}" + (f", v{found[1]}" if found[1:] else "") + (" …" if found[2:] else ""), c)
        for found, c in ((found, PALETTE[key]) for key, found in alike.items())
    ]


def visible(spans: Sequence[Span], window: Interval) -> list[Span]:
    """Spans that reach into the window, outer ones before those that lie inside them."""
    seen = [span for span in spans if span.end >= window[0] and span.start <= window[1]]
    return sorted(seen, key=lambda span: (span.start, -span.end, span.phase != WAITING))


def round_starts(spans: Sequence[Span], window: Interval) -> dict[int, float]:
    """When the trainer began its rounds in the window; at most 16 of them, evenly chosen."""
    starts: dict[int, float] = {}
    lane = lanes(spans)[0]
    for span in sorted(spans, key=lambda span: span.start):
        if span.lane == lane:
            starts.setdefault(span.round, span.start)
    inside = {n: at for n, at in starts.items() if window[0] <= at < window[1]}
    every = math.ceil(len(inside) / 16) or 1
    return {number: at for number, at in inside.items() if number % every == 0}


def figure(spans: Sequence[Span], title: str, window: Interval | None = None) -> Figure:
    """A lane a line; window: the seconds that are shown, all of them without it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "the PNG needs the package matplotlib: pip install 'rlhf-lab[analysis]'"
        ) from error
    window = window or (0.0, wall(spans))
    order = lanes(spans)
    drawn = Figure(figsize=(14, 2.1 + 0.55 * len(order)), layout="constrained")
    axes = drawn.subplots()
    draw_bars(axes, spans, window)
    axes.set_xlim(*window)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_yticks(range(len(order)), order)
    axes.set_xlabel("seconds since the run began")
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
    drawn.suptitle("\n".join(lines).replace("$", r"\$"), fontsize="medium")
    draw_legends(drawn, visible(spans, window))
    return drawn


def draw_bars(axes: Axes, spans: Sequence[Span], window: Interval) -> None:
    """Idle time hatched, work in its colours with the round's number where there is room."""
    rows = {lane: number for number, lane in enumerate(lanes(spans))}
    gaps = [(rows[lane], *gap) for lane, found in idle(spans, window).items() for gap in found]
    axes.barh(
        [row for row, _, _ in gaps],
        [end - start for _, start, end in gaps],
        left=[start for _, start, _ in gaps],
        height=0.8,
        **HATCHED,
    )
    work = [span for span in visible(spans, window) if span.phase != WAITING]
    axes.barh(
        [rows[span.lane] for span in work],
        [span.end - span.start for span in work],
        left=[span.start for span in work],
        height=0.8,
        color=[colour(span) for span in work],
        edgecolor="white",
        linewidth=0.3,
    )
    for span in work:
        start, end = max(span.start, window[0]), min(span.end, window[1])
        if span.phase in ("generate", "update") and end - start > 0.018 * (window[1] - window[0]):
            middle, row = (start + end) / 2, rows[span.lane]
            axes.text(
                middle, row, str(span.round), ha="center", va="center", color="white", fontsize=8
            )


HATCHED: dict[str, Any] = {
    "facecolor": "#f0f0f0",
    "edgecolor": "#a8a8a8",
    "hatch": "/////",
    "linewidth": 0,
}


def draw_legends(drawn: Figure, seen: Sequence[Span]) -> None:
    """Phases on the left, versions on the right, below the lanes."""
    from matplotlib.patches import Patch

    phases = [Patch(color=colour, label=label) for label, colour in phase_colours()]
    phases += [Patch(color=OTHER, label=OTHER_LABEL), Patch(label=IDLE_LABEL, **HATCHED)]
    versions = [Patch(color=colour, label=label) for label, colour in version_colours(seen)]
    small: dict[str, Any] = {"frameon": False, "fontsize": "small", "title_fontsize": "small"}
    drawn.legend(
        handles=phases, loc="outside lower left", ncols=3, title="phase (numbers: round)", **small
    )
    drawn.legend(
        handles=versions,
        loc="outside lower right",
        ncols=5,
        title="colour: version of the weights at work",
        **small,
    )


LANE = 34
MARGIN = 22
STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1e21; --line: #d4d7dc;
  --idle: #efefef; --hatch: #a3a3a3; }
@media (prefers-color-scheme: dark) { :root { --back: #16181c; --text: #e4e6ea; --line: #3a3f47;
  --idle: #2a2d32; --hatch: #70757d; } }
body { background: var(--back); color: var(--text); font: 14px system-ui, sans-serif; margin: 24px }
h1 { font-size: 17px; margin: 0 0 4px } p { margin: 4px 0 }
.frame { display: flex; margin: 12px 0 } .lanes { padding-right: 10px; white-space: nowrap }
.lanes div { height: 34px; line-height: 34px; text-align: right }
.lanes div:first-child { height: 22px }
.chart { flex: 1; min-width: 0; overflow-x: auto } svg { display: block; width: 100% }
svg text { fill: var(--text); font-size: 11px } svg line { stroke: var(--line) }
.fine { display: none } .near .fine { display: inline }
.span { stroke: var(--back); stroke-width: 0.5 } .span:hover { stroke: var(--text) }
#idle rect { fill: var(--idle) } #idle path { stroke: var(--hatch); stroke-width: 2 }
.legend span { display: inline-block; margin: 0 14px 4px 0; white-space: nowrap }
.legend i { display: inline-block; width: 22px; height: 12px; margin-right: 5px }
.hatched { background: repeating-linear-gradient(135deg, var(--hatch) 0 2px, var(--idle) 2px 6px) }
button { font: inherit; min-width: 34px }
"""
SCRIPT = """
const chart = document.querySelector(".chart"), svg = chart.querySelector("svg");
let zoom = 1;
function scale(factor, x) {
  const place = (chart.scrollLeft + x) / svg.getBoundingClientRect().width;
  zoom = Math.min(100, Math.max(1, zoom * factor));
  svg.style.width = 100 * zoom + "%";
  svg.classList.toggle("near", zoom >= 8);
  chart.scrollLeft = place * svg.getBoundingClientRect().width - x;
}
for (const button of document.querySelectorAll("button"))
  button.addEventListener("click", () => scale(+button.dataset.factor, chart.clientWidth / 2));
chart.addEventListener("wheel", event => {
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
  event.preventDefault();
  scale(Math.exp(-event.deltaY / 400), event.clientX - chart.getBoundingClientRect().left);
}, { passive: false });
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{name}</title>
<style>{style}</style>
</head>
<body>
{heading}
<p><button data-factor="2" title="closer">+</button>
<button data-factor="0.5" title="farther">&minus;</button>
<button data-factor="0.001">all</button>
Wheel: zoom. Shift and wheel: along the time axis. Point at a span to read it.</p>
<div class="frame"><div class="lanes">{lanes}</div><div class="chart">
{chart}
</div></div>
<p class="legend">{phases}</p>
<p class="legend">version of the weights at work: {versions}</p>
<script>{script}</script>
</body>
</html>
"""


def html(spans: Sequence[Span], title: str, window: Interval | None = None) -> str:
    """A page that needs nothing else; window: the seconds that are shown, all without it."""
    window = window or (0.0, wall(spans))
    first, *rest = title.splitlines() or [""]
    phases = [*phase_colours(), (OTHER_LABEL, OTHER)]
    return PAGE.format(
        name=escape(first),
        style=STYLE,
        heading="\n".join([f"<h1>{escape(first)}</h1>", *(f"<p>{escape(r)}</p>" for r in rest)]),
        lanes="".join(f"<div>{escape(name)}</div>" for name in ["", *lanes(spans)]),
        chart=chart(spans, window),
        phases=swatches(phases) + f'<span><i class="hatched"></i>{IDLE_LABEL}</span>',
        versions=swatches(version_colours(visible(spans, window))),
        script=SCRIPT,
    )


def swatches(colours: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<span><i style="background:{colour}"></i>{escape(label)}</span>'
        for label, colour in colours
    )


def chart(spans: Sequence[Span], window: Interval) -> str:
    """The lanes as SVG. Its x axis is in percent, so that its width alone sets the zoom."""
    rows = {lane: MARGIN + LANE * number for number, lane in enumerate(lanes(spans))}
    height = MARGIN * 2 + LANE * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" height="{height}">',
        '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6"/><path d="M3 0V6"/></pattern>'
        "</defs>",
        *marks(spans, window, height),
    ]
    for lane, gaps in idle(spans, window).items():
        for start, end in gaps:
            text = f"{IDLE_LABEL}\nstart {start:.3f} s\n{1000 * (end - start):.1f} ms"
            parts.append(rectangle("gap", "url(#idle)", (start, end), rows[lane], window, text))
    for span in visible(spans, window):
        fill = "url(#idle)" if span.phase == WAITING else colour(span)
        place = (span.start, span.end)
        parts.append(rectangle("span", fill, place, rows[span.lane], window, tooltip(span)))
    return "\n".join([*parts, "</svg>"])


def tooltip(span: Span) -> str:
    chunk = "" if span.chunk is None else f"\nchunk {span.chunk}"
    return (
        f"{span.phase}\nround {span.round}\nversion {span.version}{chunk}\n"
        f"start {span.start:.3f} s\n{1000 * (span.end - span.start):.1f} ms"
    )


def percent(at: float, window: Interval) -> str:
    return f"{100 * (at - window[0]) / (window[1] - window[0]):.5f}%"


def rectangle(kind: str, fill: str, place: Interval, y: int, window: Interval, text: str) -> str:
    width = percent(window[0] + place[1] - place[0], window)
    return (
        f'<rect class="{kind}" fill="{fill}" x="{percent(place[0], window)}" y="{y + 3}" '
        f'width="{width}" height="{LANE - 6}"><title>{escape(text)}</title></rect>'
    )


def marks(spans: Sequence[Span], window: Interval, height: int) -> list[str]:
    """Rounds above the lanes, seconds below them; more seconds when one looks closely."""
    parts = []
    for number, at in round_starts(spans, window).items():
        x = percent(at, window)
        parts.append(f'<line x1="{x}" x2="{x}" y1="4" y2="{height - MARGIN}"/>')
        parts.append(f'<text x="{x}" dx="3" y="14">round {number}</text>')
    step = tick_step(window[1] - window[0])
    for number in range(math.ceil(10 * window[0] / step), math.ceil(10 * window[1] / step)):
        x, kind = percent(number * step / 10, window), "fine" if number % 10 else "coarse"
        label = f"{number * step / 10:.6g} s"
        parts.append(f'<text class="{kind}" x="{x}" y="{height - 6}">{label}</text>')
    return parts


def tick_step(seconds: float) -> float:
    """1, 2 or 5 times a power of ten, so that at most ten steps fit."""
    power = 10.0 ** math.floor(math.log10(seconds / 10))
    return next(power * times for times in (1, 2, 5, 10, 20) if power * times * 10 >= seconds)


def window_of(spans: Sequence[Span], first: int, last: int) -> Interval:
    """When the trainer was at rounds first to last; where it has none, when anyone was."""
    chosen = [span for span in spans if first <= span.round <= last]
    if not chosen:
        low, high = min(span.round for span in spans), max(span.round for span in spans)
        raise UserError(
            f"--rounds {first}:{last} holds none of the run's rounds: choose within {low}:{high}"
        )
    of_trainer = [span for span in chosen if span.lane == TRAINER] or chosen
    window = (min(span.start for span in of_trainer), max(span.end for span in of_trainer))
    if window[0] == window[1]:
        raise UserError(f"--rounds {first}:{last} took no time: choose more rounds")
    return window


def middle(spans: Sequence[Span]) -> tuple[int, int] | None:
    """The rounds to show of a run too long to be shown whole; None for the others."""
    rounds = sorted({span.round for span in spans})
    if max(Counter(span.lane for span in spans).values()) <= MOST_SPANS:
        return None
    start = max(0, (len(rounds) - MIDDLE_ROUNDS) // 2)
    shown = rounds[start : start + MIDDLE_ROUNDS]
    return shown[0], shown[-1]


def heading(name: str, spans: Sequence[Span]) -> str:
    """The run, its wall-clock and how idle its lanes were."""
    shares = ", ".join(f"{lane} {100 * share:.0f}%" for lane, share in idle_shares(spans).items())
    return f"{name}: {wall(spans):.1f} s of wall-clock; idle: {shares}"


def rounds(text: str) -> tuple[int, int]:
    """The first and the last round of A:B."""
    match = re.fullmatch(r"([0-9]+):([0-9]+)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r}: pass the first and the last round to show, such as --rounds 8:15"
        )
    return int(match[1]), int(match[2])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    text = "the first and the last round to show (a long run: its middle)"
    parser.add_argument("--rounds", type=rounds, metavar="A:B", help=text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Draw a run's timeline into its folder and name the files. Returns 0."""
    folder: Path = options.run
    chosen: tuple[int, int] | None = options.rounds
    found = spans(folder)
    title, window = heading(folder.resolve().name, found), (0.0, wall(found))
    if between := chosen or middle(found):
        window = window_of(found, *between)
        note = f"shown: rounds {between[0]} to {between[1]} of {max(s.round for s in found) + 1}"
        if not chosen:
            note += ", the middle of the run (others: --rounds A:B)"
            console.say(note)
        title += f"\n{note}; idle shares are over the whole run"
    page, picture = folder / "timeline.html", folder / "timeline.png"
    page.write_text(html(found, title, window), encoding="utf-8")
    console.say(f"wrote {page}")
    figure(found, title, window).savefig(picture, dpi=150)
    console.say(f"wrote {picture}")
    return 0


COMMAND = OptionsCommand(
    "timeline",
    "draw who worked and who waited",
    "runs/RUN --rounds 8:15",
    usage="RUN [--rounds A:B]",
    add_options=add_options,
    action=show,
)
