"""`rlhf-lab watch`: a run or a sweep that any process writes, followed until it ends."""

from __future__ import annotations

import argparse
import math
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import rich.console
from rich.live import Live

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.live.display import PlainScreen
from rlhf_lab.runs.live.lines import Pace, bars_for, print_timed, run_line
from rlhf_lab.runs.live.panels import render
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.job_progress import JobProgress, RecordedJobs
from rlhf_lab.sweeps.sweep_file import RECORD
from rlhf_lab.types.errors import UserError

FEWEST_SECONDS, MOST_SECONDS = 0.2, 3600.0
# Lines of a table that is printed once, and not drawn on a screen.
ALL_LINES = 10**6


class WatchedRun:
    def __init__(self, folder: Path) -> None:
        self.follower = RunFollower(folder)
        self._pace = Pace(time.monotonic)
        self._shown: tuple[str, str] | None = None

    def screen(self, screen: rich.console.Console, height: int) -> rich.console.RenderableType:
        state = self.follower.view()
        return render(state, self.follower.rows, screen.width, bars_for(screen.encoding))

    def lines(self) -> list[str]:
        """The lines that are due now: for a new state at once, else at the pace of a log."""
        state = self.follower.view()
        now = (state.state, state.stage)
        if self._shown == now and not self._pace.is_due():
            return []
        self._shown = now
        self._pace.printed()
        return [run_line(state)]

    def is_over(self) -> bool:
        return not self.follower.view().is_running


class WatchedSweep:
    def __init__(self, folder: Path) -> None:
        self.name = folder.resolve().name
        self.jobs = RecordedJobs(folder)
        self._progress = JobProgress(self.jobs, time.monotonic)
        self._is_first = True

    def screen(self, screen: rich.console.Console, height: int) -> rich.console.RenderableType:
        return self._progress.table(screen.width, height)

    def lines(self) -> list[str]:
        """The lines that are due now."""
        lines = self._progress.summary() if self._is_first else self._progress.lines()
        self._is_first = False
        return lines

    def is_over(self) -> bool:
        return self.jobs.is_over(self.jobs.read())


Source = WatchedRun | WatchedSweep


def open_source(folder: Path) -> Source:
    """What a folder holds. Raises UserError if that is neither a run nor a sweep."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name a run or a sweep (see `rlhf-lab runs`)")
    if (folder / MANIFEST).exists():
        return WatchedRun(folder)
    if (folder / RECORD).exists():
        return WatchedSweep(folder)
    inside = sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}"))
    remedy = f"`rlhf-lab watch {folder / inside[0]}`" if inside else f"`rlhf-lab runs {folder}`"
    raise UserError(
        f"{folder} is neither a run nor a sweep (no {MANIFEST}, no {RECORD}): try {remedy}"
    )


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not FEWEST_SECONDS <= value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r}: pass {FEWEST_SECONDS:g} to {MOST_SECONDS:g} seconds, such as --every 5"
        )
    return value


def port(text: str) -> int:
    """A port of this machine; 0 for any that is free."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: pass a port from 0 (any free one) to 65535")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN|SWEEP", help="the folder to follow")
    parser.add_argument("--once", action="store_true", help="show it as it is now, and end")
    text = "seconds between two screens or checks (1)"
    parser.add_argument("--every", type=seconds, default=1.0, metavar="SECONDS", help=text)
    text = "serve a page with live curves, on this machine alone, until Ctrl-C"
    parser.add_argument("--web", action="store_true", help=text)
    text = "port of the page; 0 takes any that is free (0)"
    parser.add_argument("--port", type=port, metavar="PORT", help=text)


def show(options: argparse.Namespace, console: Console) -> int:
    if options.port is not None and not options.web:
        raise UserError("--port is for --web: pass both, or neither")
    if options.web and options.once:
        raise UserError("--web follows the run until Ctrl-C: leave out --once")
    source = open_source(options.folder)
    if options.web:
        from rlhf_lab.cli.watch_server import serve

        serve(source, options.port or 0, console)
        return 0
    screen = PlainScreen()
    if options.once:
        screen.print(source.screen(screen, ALL_LINES))
    else:
        follow(source, screen, options.every)
    return 0


def follow(source: Source, screen: rich.console.Console, every: float) -> None:
    """Redraw the screen of a terminal, or print plain lines, until what is watched has ended, or
    Ctrl-C, which does not reach what is watched."""
    drawing = Live(console=screen, auto_refresh=False) if screen.is_terminal else nullcontext()
    with drawing as live, suppress(KeyboardInterrupt):
        is_last = False
        while not is_last:
            is_last = source.is_over()
            if live is not None:
                live.update(source.screen(screen, screen.height), refresh=True)
            else:
                print_timed(source.lines())
            if not is_last:
                time.sleep(every)


WATCH = OptionsCommand(
    "watch",
    "follow a run or a sweep that any process writes, in the terminal or a browser",
    "runs/RUN --every 5",
    usage="RUN|SWEEP [--once] [--every SECONDS] [--web [--port PORT]]",
    completes="folders",
    add_options=add_options,
    action=show,
)
