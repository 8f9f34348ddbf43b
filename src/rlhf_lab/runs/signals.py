"""SIGTERM, SIGUSR1 and SIGUSR2, by which a scheduler stops a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rlhf_lab.types.errors import StopRequested

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stop:
    """A signal handler that raises StopRequested, or only sets a flag inside `deferred`."""

    def __init__(self) -> None:
        self._is_deferred = False
        self.is_requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        if not self._is_deferred:
            raise StopRequested

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The block itself checks `is_requested`, and raises when its state is saved."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Handle the signals while the block runs; other threads than the main one cannot."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {name: signal.signal(name, stop) for name in SIGNALS}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
