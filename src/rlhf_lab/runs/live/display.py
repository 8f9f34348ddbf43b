"""Shows a run of this process while it works: panels on a terminal, plain lines elsewhere.

A thread of its own reads the run's files and keeps progress.json, which others read. It changes
nothing that the run computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import rich.console
from rich.live import Live

from rlhf_lab.runs.live.lines import Pace, run_line
from rlhf_lab.runs.live.panels import render
from rlhf_lab.runs.live.progress import PROGRESS, TRAIN, Activity, Progress, write_progress
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.runs.live.texts import bars_for
from rlhf_lab.types.data import Clock

# Drawing takes time from the run that is being measured.
DRAW_SECONDS = 1.0
WRITE_SECONDS = 2.0


@contextmanager
def repeating(call: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function every so many seconds, in a thread, while the block runs."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(seconds):
            call()

    thread = threading.Thread(target=repeat, daemon=True, name="display")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class RunDisplay:
    """The display of one run. console: None shows nothing, and keeps progress.json alone."""

    def __init__(
        self,
        folder: Path,
        activity: Activity,
        console: rich.console.Console | None,
        is_live: bool,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._activity = activity
        self._console = console
        self._is_live = is_live and console is not None
        self._clock = clock
        self._follower = RunFollower(folder)
        self._pace = Pace(clock)
        self._live: Live | None = None
        self._shown: tuple[str, int] = ("", 0)
        self._written_at: float | None = None
        self._can_write = True

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the run while the block runs, and how it ended."""
        with self._screen() as self._live:
            try:
                with repeating(self.tick, DRAW_SECONDS):
                    yield
            finally:
                (self._folder / PROGRESS).unlink(missing_ok=True)
                self._draw()

    def _screen(self) -> AbstractContextManager[Live | None]:
        if not self._is_live:
            return nullcontext()
        return Live(console=self._console, auto_refresh=False)

    def tick(self) -> None:
        """Bring the file and the screen up to date."""
        progress = self._activity.progress()
        self._write(progress)
        if self._is_live:
            self._draw()
        elif self._pace.is_due(has_advanced=self._shown != (progress.stage, progress.done)):
            self.print_line()

    def print_line(self) -> None:
        """Print how far the run is, as a plain line."""
        progress = self._activity.progress()
        self._shown = progress.stage, progress.done
        self._pace.printed()
        if self._console is not None:
            self._console.print(run_line(self._follower.view(progress)), soft_wrap=True)

    def close_stage(self) -> None:
        """Print where a stage ended. On a terminal the panels show how the training ended."""
        if not (self._is_live and self._activity.progress().stage == TRAIN):
            self.print_line()

    def _draw(self) -> None:
        if self._live is None or self._console is None:
            return
        # What it printed stands above the panels.
        progress = replace(self._activity.progress(), notes=())
        bars = bars_for(self._console.encoding)
        state = self._follower.view(progress)
        shown = render(state, self._follower.rows, self._console.width, bars)
        self._live.update(shown, refresh=True)

    def _write(self, progress: Progress) -> None:
        now = self._clock()
        if not self._can_write or (
            self._written_at is not None and now - self._written_at < WRITE_SECONDS
        ):
            return
        self._written_at = now
        try:
            write_progress(self._folder, progress)
        except OSError as error:
            # A full disk ends the run where it writes what it needs, with a better message.
            self._can_write = False
            if self._console is not None:
                self._console.print(
                    f"{self._folder / PROGRESS} cannot be written ({error.strerror}): "
                    "`rlhf-lab watch` shows whole rounds only",
                    soft_wrap=True,
                )
