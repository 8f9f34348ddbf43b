"""Shows what this process does: redrawn in place on a terminal and in a notebook, plain lines
elsewhere.

A thread reads the activity, and of a run its files; it writes progress.json for other processes. It
changes nothing that is computed.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import rich.console
from rich.jupyter import JUPYTER_HTML_FORMAT
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.spinner import Spinner
from rich.table import Table

from rlhf_lab.runs.live.lines import Pace, bars_for, run_line, stage_line
from rlhf_lab.runs.live.panels import BAR_WIDTH, one_line, render
from rlhf_lab.runs.live.progress import PROGRESS, TRAIN, Activity, Progress, write_progress
from rlhf_lab.runs.live.state import RunFollower
from rlhf_lab.runs.output import printable
from rlhf_lab.types.data import Clock

# Drawing takes time from the run that is being measured.
DRAW_SECONDS = 1.0
SPIN_SECONDS = 0.25
WRITE_SECONDS = 2.0


class CellScreen:
    """Has what is used of rich's Live. width: of the output, in characters."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._handle: Any = None

    def __enter__(self) -> CellScreen:
        return self

    def __exit__(self, *_: object) -> None:
        """The last picture stays in the cell."""

    def update(self, picture: rich.console.RenderableType, refresh: bool) -> None:
        """Replace the output. refresh: at once, as is done in any case."""
        # IPython is there where this is called, and has no types.
        display: Any = import_module("IPython.display").display
        forms = self._forms(picture)
        if self._handle is None:
            self._handle = display(forms, raw=True, display_id=True)
        else:
            self._handle.update(forms, raw=True)

    def _forms(self, picture: rich.console.RenderableType) -> dict[str, str]:
        """The picture as HTML and, for readers of the saved notebook, as text."""
        paper = PlainScreen(record=True, file=io.StringIO(), width=self._width, force_jupyter=False)
        paper.print(picture)
        return {
            "text/plain": paper.export_text(clear=False),
            "text/html": paper.export_html(code_format=JUPYTER_HTML_FORMAT, inline_styles=True),
        }


Screen = Live | CellScreen


class PlainScreen(rich.console.Console):
    """A console that changes nothing in the texts that it prints, but for what a terminal would
    obey in them: runs, models and rewards write these texts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterator[Segment]:
        """The parts of a picture, nested ones included."""
        for part in super().render(renderable, options):
            is_plain = part.control or part.text.isprintable()
            yield part if is_plain else Segment(printable(part.text), part.style)


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


class Display:
    """Stages and phases of a command: a line with a bar or a spinner, which disappears at the end.

    console: None shows nothing. phases: where lines of phases go outside a terminal; they are no
    part of what a command prints.
    """

    seconds = SPIN_SECONDS

    def __init__(
        self,
        activity: Activity,
        console: rich.console.Console | None,
        is_live: bool,
        clock: Clock,
        phases: rich.console.Console | None = None,
    ) -> None:
        self._activity = activity
        self._console = console
        self._phases = phases or console
        self._is_live = is_live and console is not None
        self._clock = clock
        self._pace = Pace(clock)
        self._doing = ""
        self._screen: Screen | None = None
        is_ascii = console is None or console.options.ascii_only
        self._spinner = Spinner("line" if is_ascii else "dots")

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the work while the block runs, and how it ended."""
        with self._opened() as self._screen:
            try:
                with repeating(self.tick, self.seconds):
                    yield
            finally:
                self._end()

    def tick(self) -> None:
        """Bring the screen up to date, or print a line if it is time for one."""
        if self._is_live:
            self._draw()
            return
        progress = self._activity.progress()
        doing = progress.stage or progress.phase
        if doing != self._doing:
            # Every stage and phase has a line after five seconds, however old the command is.
            seconds = progress.seconds if progress.stage else progress.phase_seconds
            self._doing, self._pace = doing, Pace(self._clock, seconds)
        if self._pace.is_due():
            self.print_line()

    def print_line(self) -> None:
        progress = self._activity.progress()
        self._pace.printed()
        console = self._console if progress.stage else self._phases
        if console is not None:
            console.print(self._line(progress), soft_wrap=True)

    def close_stage(self) -> None:
        self.print_line()

    def _opened(self) -> AbstractContextManager[Screen | None]:
        if not self._is_live:
            return nullcontext()
        return Live(console=self._console, auto_refresh=False, transient=True)

    def _end(self) -> None:
        """After the last tick."""

    def _draw(self) -> None:
        if self._screen is not None and self._console is not None:
            self._screen.update(self._picture(self._console), refresh=True)

    def _line(self, progress: Progress) -> str:
        return stage_line(progress)

    def _picture(self, console: rich.console.Console) -> rich.console.RenderableType:
        """The line, behind a bar of a stage or the spinner of a phase."""
        progress = self._activity.progress()
        sign: rich.console.RenderableType = self._spinner
        if progress.stage:
            sign = ProgressBar(progress.total, progress.done, width=BAR_WIDTH)
        row = Table.grid(padding=(0, 1))
        row.add_row(sign, one_line(stage_line(progress)))
        return row


class RunDisplay(Display):
    """The display of one run: its panels, and progress.json. console: None keeps the file alone."""

    seconds = DRAW_SECONDS

    def __init__(
        self,
        folder: Path,
        activity: Activity,
        console: rich.console.Console | None,
        is_live: bool,
        clock: Clock,
    ) -> None:
        super().__init__(activity, console, is_live, clock)
        self._folder = folder
        self._follower = RunFollower(folder)
        self._written_at: float | None = None
        self._can_write = True

    def tick(self) -> None:
        """Bring the file and the screen up to date."""
        self._write(self._activity.progress())
        super().tick()

    def close_stage(self) -> None:
        """Print where a stage ended. On a terminal the panels show how the training ended."""
        if not (self._is_live and self._activity.progress().stage == TRAIN):
            self.print_line()

    def _opened(self) -> AbstractContextManager[Screen | None]:
        if not self._is_live or self._console is None:
            return nullcontext()
        if self._console.is_jupyter:
            return CellScreen(self._console.width)
        return Live(console=self._console, auto_refresh=False)

    def _end(self) -> None:
        (self._folder / PROGRESS).unlink(missing_ok=True)
        self._draw()

    def _line(self, progress: Progress) -> str:
        return run_line(self._follower.view(progress))

    def _picture(self, console: rich.console.Console) -> rich.console.RenderableType:
        # What the run printed is above the panels.
        progress = replace(self._activity.progress(), notes=())
        state = self._follower.view(progress)
        return render(state, self._follower.rows, console.width, bars_for(console.encoding))

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
