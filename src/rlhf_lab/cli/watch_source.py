"""What `rlhf-lab watch` follows: a run or a sweep, found by its folder."""

from __future__ import annotations

import time
from pathlib import Path

import rich.console

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.live.lines import Pace, bars_for, run_line
from rlhf_lab.runs.live.panels import render
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.sweeps.live_table import JobLines, rendered
from rlhf_lab.sweeps.recorded_jobs import RecordedJobs
from rlhf_lab.sweeps.sweep_file import RECORD
from rlhf_lab.types.errors import UserError


class WatchedRun:
    """A run as it is watched."""

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
    """A sweep as it is watched."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.resolve().name
        self.jobs = RecordedJobs(folder)
        self._lines = JobLines(self.jobs, time.monotonic)
        self._is_first = True

    def screen(self, screen: rich.console.Console, height: int) -> rich.console.RenderableType:
        rows = self.jobs.read()
        return rendered(rows, self.jobs.seconds_left(rows), screen.width, height)

    def lines(self) -> list[str]:
        """The lines that are due now."""
        lines = self._lines.summary() if self._is_first else self._lines.due()
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
