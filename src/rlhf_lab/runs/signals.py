"""SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which stop a run, and Ctrl-C (SIGINT).

SIGHUP comes when a terminal is closed; schedulers send the others.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from rlhf_lab.types.errors import StopRequested

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# As this a command's first process (cli.parent) passes Ctrl-C on. The terminal sends Ctrl-C to
# both processes: it must count once.
PASSED_ON = signal.SIGURG
INTERRUPTS = (signal.SIGINT, PASSED_ON)
ENDING = "\nstopping after this round, with a checkpoint; Ctrl-C again ends at once\n"
# Set by torchrun, which passes Ctrl-C on to processes that the terminal has sent it to already.
TORCHRUN = "TORCHELASTIC_RUN_ID"
# What sysexits.h calls a temporary failure: a scheduler should run the same command again.
REQUEUE = 75
INTERRUPTED = 130


class Interrupts:
    """Counts Ctrl-C, which may come as both INTERRUPTS."""

    def __init__(self) -> None:
        self._seen: Counter[int] = Counter()

    def is_new(self, number: int) -> bool:
        """Whether this signal is another Ctrl-C, and not the second form of one."""
        before = max(self._seen.values(), default=0)
        self._seen[number] += 1
        return self._seen[number] > before


class SignalHandler:
    """A signal handler that raises StopRequested, or KeyboardInterrupt at Ctrl-C: once, and again
    for each further Ctrl-C. Inside `deferred` it only sets flags, unless Ctrl-C comes a second
    time; inside `immediate` it raises there too; inside `shielded` it never raises.

    starting: the command, until `begun` is called: there is nothing to save yet, and the process
    ends in the handler, since imports lose exceptions. is_interrupt: Ctrl-C was among the signals.
    """

    def __init__(self, starting: str = "") -> None:
        self.starting = starting
        self._is_deferred = self._is_shielded = self._is_immediate = False
        self._is_ending = False
        self._interrupts = Interrupts()
        self.is_requested = self.is_interrupt = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_ctrl_c = number in INTERRUPTS
        if is_ctrl_c and not self._interrupts.is_new(number):
            return
        if self._is_ending:
            return
        if self.starting:
            self._is_ending = True  # a parent passes on what the terminal sends here too
            what = "interrupted" if is_ctrl_c else "stopped by a signal"
            say(f"rlhf-lab {self.starting}: {what} before it began; nothing is lost\n")
            os._exit(INTERRUPTED if is_ctrl_c else REQUEUE)
        is_first, is_first_interrupt = not self.is_requested, is_ctrl_c and not self.is_interrupt
        is_again = is_ctrl_c and self.is_interrupt and TORCHRUN not in os.environ
        self.is_requested = True
        self.is_interrupt = self.is_interrupt or is_ctrl_c
        if self._is_shielded or not (is_first or is_ctrl_c):
            return
        if self._is_deferred and not is_again:
            if self._is_immediate:
                raise StopRequested
            if is_first_interrupt:
                say(ENDING)
            return
        raise KeyboardInterrupt if is_ctrl_c else StopRequested

    def raise_requested(self) -> None:
        """Raise what was requested, where code that the exception passed through has lost it."""
        if self.is_requested:
            raise KeyboardInterrupt if self.is_interrupt else StopRequested

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The block itself checks `is_requested`, and raises when its state is saved."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False

    @contextmanager
    def immediate(self) -> Iterator[None]:
        """A block within `deferred` that changes no state: a request raises StopRequested in it."""
        if self._is_deferred and self.is_requested:
            raise StopRequested
        self._is_immediate = True
        try:
            yield
        finally:
            self._is_immediate = False

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """The block is short and must come to its end."""
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False


def say(text: str) -> None:
    """Write to standard error from a signal handler: a buffered stream may be in the middle of a
    write, and the terminal may be closed."""
    with suppress(OSError):
        os.write(2, text.encode())


def heeded(numbers: Sequence[signal.Signals]) -> list[signal.Signals]:
    """The signals that this process was not started to ignore, as nohup has it for SIGHUP, and a
    script for SIGINT in its background jobs."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def current() -> SignalHandler:
    """The handler of this process; one that gets no signals where none is set, as in a notebook's
    thread."""
    handler = signal.getsignal(signal.SIGTERM)
    return handler if isinstance(handler, SignalHandler) else SignalHandler()


@contextmanager
def listening(starting: str = "") -> Iterator[SignalHandler]:
    """Handle the signals while the block runs, by the handler that this process has already or by
    a new one; other threads than the main one cannot. starting: as SignalHandler has it."""
    stop = current()
    stop.starting = starting
    stop.raise_requested()
    numbers: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        # Slurm's steps of a trainer ignore the others until it has something to save.
        numbers = heeded([*SIGNALS, signal.SIGINT] if starting else [signal.SIGHUP, signal.SIGINT])
        numbers += [number for number in SIGNALS if not starting and number is not signal.SIGHUP]
        numbers += [PASSED_ON] if signal.SIGINT in numbers else []
    unset = [number for number in numbers if signal.getsignal(number) is not stop]
    before = {number: signal.signal(number, stop) for number in unset}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begun() -> None:
    """The command has loaded what it needs: from here on signals raise."""
    current().starting = ""
