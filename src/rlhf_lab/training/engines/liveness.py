"""Which processes of a run still live: each counts in the store, and others watch the count.

A machine that loses power closes no connection, so that a process that waits for it would wait for
as long as its call allows.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from socket import gethostname
from typing import Any

KEY = "rlhf_lab/alive"
BEAT_SECONDS = 5.0
# Far longer than a process is kept from counting by work that holds Python's lock.
SILENCE_SECONDS = 600.0
STORE_TIMEOUT = timedelta(seconds=60)
# How long `stop` waits for an answer of the store that is under way.
STOP_SECONDS = 10.0


def end_worker(message: str) -> None:
    """End a worker rank, which nobody calls any more."""
    report(message)
    os._exit(1)


def report(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


@dataclass
class Liveness:
    """Counts for this process and watches others: rank 0 all ranks, the others rank 0.

    store: of the group, shared by all ranks. silence: seconds without a count after which
    `on_silence` is called, once, with a message that names the processes.
    """

    store: Any
    rank: int
    size: int
    on_silence: Callable[[str], None]
    beat: float = BEAT_SECONDS
    silence: float = SILENCE_SECONDS
    _seen: dict[int, tuple[bytes, float]] = field(default_factory=dict, init=False)
    _end: threading.Event = field(default_factory=threading.Event, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def start(self) -> None:
        others = range(1, self.size) if self.rank == 0 else range(1)
        self._seen = {other: (b"", time.monotonic()) for other in others}
        # Two threads: the store may be on the machine that is lost, and never answer.
        for work in (self._count, self._watch):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Neither count nor watch any more. Returns when both threads have ended, or the store did
        not answer in time: a thread that asks the store while Python ends aborts the process."""
        self._end.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _count(self) -> None:
        number = 0
        # The store ends with its process; the silence that follows is noticed by `_watch`.
        with contextlib.suppress(RuntimeError):
            while True:
                self.store.set(f"{KEY}/{self.rank}", f"{gethostname()} {number}")
                for other, (before, _) in list(self._seen.items()):
                    key = f"{KEY}/{other}"
                    value = self.store.get(key) if self.store.check([key]) else b""
                    if value != before:
                        self._seen[other] = (value, time.monotonic())
                number += 1
                if self._end.wait(self.beat):
                    return

    def _watch(self) -> None:
        while not self._end.wait(self.beat):
            if message := self.silent(self.silence):
                self.on_silence(message)
                return

    def silent(self, seconds: float) -> str:
        """The processes that have not counted for so many seconds; empty if all have."""
        now = time.monotonic()
        return "; ".join(
            f"process {other} of {self.size} ({value.decode().partition(' ')[0] or 'unknown host'})"
            f" has given no sign of life for {now - since:.0f} s: was it killed, or its machine "
            "lost?"
            for other, (value, since) in self._seen.items()
            if now - since > seconds
        )

    def lost(self) -> str:
        """The processes that do not count now, after a wait of three counts."""
        self._end.wait(3 * self.beat)
        return self.silent(2.5 * self.beat)


def watched(store: Any, rank: int, size: int) -> Liveness:
    """Count and watch from now on, over a connection of its own."""
    own = store.clone()
    own.set_timeout(STORE_TIMEOUT)
    action = report if rank == 0 else end_worker
    found = Liveness(own, rank, size, action, BEAT_SECONDS, SILENCE_SECONDS)
    found.start()
    return found
