"""Stop the jobs of a sweep on this machine: each saves its state first, whatever its launcher."""

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

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@dataclass(frozen=True)
class StopFiles:
    """Files through which a sweep stops its jobs: `stop`, after which no job starts, and a file for
    each running job, named after its process."""

    folder: Path

    @property
    def is_stopped(self) -> bool:
        return (self.folder / "stop").exists()

    @contextmanager
    def child(self, pid: int) -> Iterator[None]:
        """Keep the file of a process while the block runs."""
        path = self.folder / str(pid)
        path.write_text(birth(pid) or "", encoding="utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Start no more jobs; send SIGTERM to running ones, which then save their state."""
        (self.folder / "stop").touch()
        for path in self.folder.iterdir():
            # The number may belong to another process by now.
            if path.name.isdigit() and birth(int(path.name)) == path.read_text(encoding="utf-8"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGTERM)


@contextmanager
def stop_on_signal(folder: Path, is_here: bool) -> Iterator[StopFiles]:
    """The stop files of a launch. A signal stops its jobs; when they have ended, it raises here. A
    second signal raises at once. Jobs on other machines (not is_here) are not stopped.
    """
    stop_files = StopFiles(Path(tempfile.mkdtemp(prefix=".launch-", dir=folder)))
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received or not is_here:
            raise_for(number)
        received.append(number)
        stop_files.stop()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield stop_files
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        shutil.rmtree(stop_files.folder, ignore_errors=True)
    if received:
        raise_for(received[0])


def raise_for(number: int) -> None:
    """Raise the exception of a signal."""
    text = "the same command goes on with the jobs that are not finished"
    raise (KeyboardInterrupt if number == signal.SIGINT else StopRequested)(text)
