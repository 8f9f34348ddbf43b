"""Stopping a sweep: its jobs save their state first, whatever launcher here has them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rlhf_lab.runs.child import birth
from rlhf_lab.types.errors import StopRequested

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@dataclass(frozen=True)
class Marks:
    """Files by which a sweep reaches those who run its jobs: `stop`, once no job is to begin, and
    one for each child, named after its process."""

    folder: Path

    @property
    def is_stopped(self) -> bool:
        return (self.folder / "stop").exists()

    @contextmanager
    def child(self, pid: int) -> Iterator[None]:
        """Make a child known while it runs."""
        path = self.folder / str(pid)
        path.write_text(birth(pid) or "", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Let no job begin, and ask those that run to save their state and end."""
        (self.folder / "stop").touch()
        for path in self.folder.iterdir():
            # The number may have passed to another process since, if nobody could say so.
            if path.name.isdigit() and birth(int(path.name)) == path.read_text(encoding="utf-8"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGTERM)


@contextmanager
def stoppable(folder: Path, is_here: bool) -> Iterator[Marks]:
    """Marks of a launch. Signals stop its jobs first, and are raised when it has come to its end;
    the second time at once. Jobs elsewhere (not is_here) are left alone.
    """
    marks = Marks(Path(tempfile.mkdtemp(prefix=".launch-", dir=folder)))
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked or not is_here:
            raise_for(number)
        asked.append(number)
        marks.stop()

    before = {number: signal.signal(number, ask) for number in ASKING}
    try:
        yield marks
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(marks.folder, ignore_errors=True)
    if asked:
        raise_for(asked[0])


def raise_for(number: int) -> None:
    """Raise what a signal means to the command."""
    raise KeyboardInterrupt if number == signal.SIGINT else StopRequested
