"""The sign of life of somebody who is watched, for what takes long deep inside of its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


def nothing() -> None:
    """The pulse of somebody whom nobody watches."""


_pulse: ContextVar[Callable[[], None]] = ContextVar("pulse", default=nothing)


@contextmanager
def watched(pulse: Callable[[], None]) -> Iterator[None]:
    """Inside, `beat` calls this pulse: however many parts lie between, none has to pass it on."""
    token = _pulse.set(pulse)
    try:
        yield
    finally:
        _pulse.reset(token)


def beat() -> None:
    """Tell whoever watches that this is work and no hang."""
    _pulse.get()()
