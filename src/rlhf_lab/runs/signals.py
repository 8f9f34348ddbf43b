"""SIGTERM, SIGUSR1 and SIGUSR2, by which a scheduler stops a run, and Ctrl-C (SIGINT)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rlhf_lab.types.errors import StopRequested

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
ENDING = b"\nstopping after this round, with a checkpoint; Ctrl-C again ends at once\n"
# Set by torchrun, which passes Ctrl-C on to processes that the terminal has sent it to already.
TORCHRUN = "TORCHELASTIC_RUN_ID"


class SignalHandler:
    """A signal handler that raises StopRequested, or KeyboardInterrupt at Ctrl-C. Inside `deferred`
    it only sets flags, unless Ctrl-C comes a second time; inside `shielded` it never raises.

    is_interrupt: Ctrl-C was among the signals.
    """

    def __init__(self) -> None:
        self._is_deferred = self._is_shielded = False
        self.is_requested = self.is_interrupt = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_again = self.is_interrupt and number == signal.SIGINT and TORCHRUN not in os.environ
        is_first = not self.is_interrupt and number == signal.SIGINT
        self.is_requested = True
        self.is_interrupt = self.is_interrupt or is_first
        if self._is_shielded:
            return
        if self._is_deferred and not is_again:
            if is_first:
                os.write(2, ENDING)  # a buffered stream may be in the middle of a write
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
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
    def shielded(self) -> Iterator[None]:
        """The block is short and must come to its end."""
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False


@contextmanager
def listening() -> Iterator[SignalHandler]:
    """Handle the signals while the block runs; other threads than the main one cannot. SIGINT is
    left alone where it is ignored, as in the background jobs of a script."""
    stop = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handled = SIGNALS if is_ignored else (*SIGNALS, signal.SIGINT)
    before = {name: signal.signal(name, stop) for name in handled}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
