"""SIGTERM, SIGUSR1 and SIGUSR2: a scheduler wants the machine back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rlhf_lab.types.errors import StopRequested

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stop:
    """Raises StopRequested at once, or inside `deferred` only notes it, for the loop to see."""

    def __init__(self) -> None:
        self._is_deferred = False
        self.is_requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        if not self._is_deferred:
            raise StopRequested

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The block itself looks at `is_requested` and raises when its state is saved."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False


@contextmanager
def listening() -> Iterator[Stop]:
    """Listen to the signals while the block runs; only a main thread can."""
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
