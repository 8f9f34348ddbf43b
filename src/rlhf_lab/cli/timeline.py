"""`rlhf-lab timeline`: who worked when, and who waited, as a picture and as a page."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.cli.timeline_page import html
from rlhf_lab.cli.timeline_picture import figure
from rlhf_lab.runs.folder import TIMELINE
from rlhf_lab.runs.timeline import (
    SECONDS,
    VIRTUAL_SECONDS,
    LaneSpan,
    idle_shares,
    paused_shares,
    read_spans,
    read_virtual_spans,
    shares_text,
    wall,
    window_of,
)
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# A lane with more spans is not drawn whole, but so many rounds of its middle.
MOST_SPANS = 200
MIDDLE_ROUNDS = 12


def drawable_spans(folder: Path) -> list[LaneSpan]:
    """The spans of a run. Raises UserError if there are none to draw."""
    spans = read_spans(folder)
    if not spans or wall(spans) <= 0:
        raise UserError(f"{folder / TIMELINE} holds no time yet: draw it when a round is over")
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


COMMAND = OptionsCommand(
    "timeline",
    "draw who worked and who waited",
    "runs/RUN --rounds 8:15",
    usage="RUN [--rounds A:B]",
    add_options=add_options,
    action=show,
)
