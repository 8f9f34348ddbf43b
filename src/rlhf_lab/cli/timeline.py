"""`rlhf-lab timeline`: who worked when, and who waited, as a page and as a picture."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs import folder as files
from rlhf_lab.runs.timeline import (
    SECONDS,
    VIRTUAL_SECONDS,
    WAITING,
    Interval,
    LaneSpan,
    has_pauses,
    idle,
    idle_shares,
    lanes,
    paused_shares,
    read_spans,
    read_virtual_spans,
    round_starts,
    shares_text,
    visible,
    wall,
    window_of,
)
from rlhf_lab.runs.timeline_svg import (
    IDLE_LABEL,
    chart,
    colour,
    phase_colours,
    version_colours,
)
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PAGE = Path(__file__).with_name("timeline_page.html")
HATCHED: dict[str, Any] = {
    "facecolor": "#f0f0f0",
    "edgecolor": "#a8a8a8",
    "hatch": "/////",
    "linewidth": 0,
}
# A lane with more spans is not drawn whole, but so many rounds of its middle.
MOST_SPANS = 200
MIDDLE_ROUNDS = 12


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


def figure(
    spans: Sequence[LaneSpan], title: str, window: Interval | None = None, unit: str = SECONDS
) -> Figure:
    """A lane a line; window: the seconds that are shown, all of them without it. unit: of them."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "the PNG needs the package matplotlib: pip install 'rlhf-lab[analysis]'"
        ) from error
    matplotlib.rcdefaults()  # a matplotlibrc of the working folder changes no picture
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


def drawable_spans(folder: Path) -> list[LaneSpan]:
    """The spans of a run. Raises UserError if there are none to draw."""
    spans = read_spans(folder)
    if not spans or wall(spans) <= 0:
        raise UserError(
            f"{folder / files.TIMELINE} holds no time yet: draw it when a round is over"
        )
    return spans


def middle(spans: Sequence[LaneSpan]) -> tuple[int, int] | None:
    """The rounds to show of a run too long to be shown whole; None for the others."""
    rounds = sorted({span.round for span in spans})
    if max(Counter(span.lane for span in spans).values()) <= MOST_SPANS:
        return None
    start = max(0, (len(rounds) - MIDDLE_ROUNDS) // 2)
    shown = rounds[start : start + MIDDLE_ROUNDS]
    return shown[0], shown[-1]


def heading(name: str, spans: Sequence[LaneSpan], unit: str = SECONDS) -> str:
    """The run, its wall-clock, and how idle its lanes were and how long they were paused."""
    idle, paused = shares_text(idle_shares(spans)), shares_text(paused_shares(spans))
    text = f"{name}: {wall(spans):.1f} {unit} of wall-clock; idle: {idle}"
    return text + (f"; paused: {paused}" if paused else "")


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
    """Draw a run's timeline into its folder and name the files; of a virtual cluster, its own too.
    Returns 0."""
    folder: Path = options.run
    draw(folder, drawable_spans(folder), options.rounds, console)
    if virtual := read_virtual_spans(folder):
        draw(folder, virtual, options.rounds, console, VIRTUAL_SECONDS)
    return 0


def draw(
    folder: Path,
    spans: Sequence[LaneSpan],
    chosen: tuple[int, int] | None,
    console: Console,
    unit: str = SECONDS,
) -> None:
    """Draw spans as a page and a picture. chosen: the first and the last round to show; None shows
    all of them, of a long run its middle."""
    title, window = heading(folder.resolve().name, spans, unit), (0.0, wall(spans))
    if between := chosen or middle(spans):
        window = window_of(spans, *between)
        note = f"shown: rounds {between[0]} to {between[1]} of {max(s.round for s in spans) + 1}"
        if not chosen:
            note += ", the middle of the run (others: --rounds A:B)"
            console.print(note)
        title += f"\n{note}; idle shares are over the whole run"
    name = "timeline" if unit == SECONDS else "virtual_timeline"
    page, picture = folder / f"{name}.html", folder / f"{name}.png"
    page.write_text(html(spans, title, window, unit), encoding="utf-8")
    console.print(f"wrote {page}")
    figure(spans, title, window, unit).savefig(picture, dpi=150)
    console.print(f"wrote {picture}")


TIMELINE = OptionsCommand(
    "timeline",
    "draw who worked and who waited",
    "runs/RUN --rounds 8:15",
    usage="RUN [--rounds A:B]",
    completes="folders",
    add_options=add_options,
    action=show,
)
