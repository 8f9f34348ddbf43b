"""Heartbeats of a watched worker, from deep inside of calls that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def nothing() -> None:
    """The heartbeat of a worker that is not watched."""


_pulse: ContextVar[Callable[[], None]] = ContextVar("pulse", default=nothing)


@contextmanager
def watched(pulse: Callable[[], None]) -> Iterator[None]:
    """Inside, `beat` calls `pulse`, so that no function in between has to pass it on."""
    token = _pulse.set(pulse)
    try:
        yield
    finally:
        _pulse.reset(token)


def beat() -> None:
    """Signal that work goes on, so that it is not taken for a hang."""
    _pulse.get()()
