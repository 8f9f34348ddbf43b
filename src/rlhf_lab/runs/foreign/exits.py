"""Guards against foreign code that ends or forks the process.

Functions of the standard library that end, signal or replace the process are replaced by guards,
which raise in the thread that runs foreign code, and do the same as before in all others. Since the
guards raise, the run can save its state.
"""

from __future__ import annotations

# `signal` makes enums of numbers, which takes longer than the rest of a call.
import _signal  # type: ignore[import-not-found]
import _thread
import faulthandler
import functools
import mmap
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from rlhf_lab.runs.child_side import GROUP_SIGNALS

HARMLESS_SIGNALS = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)


class Refused(BaseException):
    """Foreign code tried to end the process. No Exception, since such code may catch those."""


class Here(threading.local):
    """The watch of the foreign code that runs in this thread; None without any."""

    watch: Watch | None = None


_here = Here()
_installing = threading.Lock()
_is_installed = False
_num_interrupts = 0
_end_at_once = os._exit
# Shared with forks of the process: 1 if one of them returned from foreign code.
_came_back = mmap.mmap(-1, 1)


class Watch:
    """For a block in which this thread runs foreign code."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.attempts: list[str] = []
        self.had_copies = False

    def __enter__(self) -> Watch:
        self._before = _num_interrupts
        # Python's own handler does not count signals.
        self._is_listening = (
            threading.current_thread() is threading.main_thread()
            and _signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._is_listening:
            _signal.signal(signal.SIGINT, interrupt)
        self._outer, _here.watch = _here.watch, self
        return self

    def __exit__(self, *_: object) -> None:
        _here.watch = self._outer
        if self._is_listening and _signal.getsignal(signal.SIGINT) is interrupt:
            _signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def was_interrupted(self) -> bool:
        """Whether SIGINT was received."""
        return _num_interrupts > self._before

    def end_copies(self) -> None:
        """End a fork of the process before it goes on with the run; in the run's process, note
        that there was one."""
        if os.getpid() != self.pid:
            _came_back[0] = 1
            _end_at_once(1)
        if _came_back[0]:
            _came_back[0] = 0
            self.had_copies = True


def interrupt(number: int, frame: FrameType | None) -> None:
    """Python's own handler of SIGINT, which also counts."""
    global _num_interrupts
    _num_interrupts += 1
    raise KeyboardInterrupt


def install() -> None:
    """Install the guards in this process, and print the stack of a crash."""
    global _is_installed
    if _is_installed:
        return
    with _installing:
        if _is_installed:
            return
        for module, name, refuses in GUARDED:
            setattr(module, name, guarded(getattr(module, name), module, name, refuses))
        if not faulthandler.is_enabled():
            faulthandler.enable(file=2)
        _is_installed = True


def guarded(
    original: Callable[..., Any], module: ModuleType, name: str, refuses: Callable[..., bool]
) -> Callable[..., Any]:
    """The function with a guard: it raises where foreign code would end or signal the run."""

    @functools.wraps(original)
    def guard(*given: Any, **named: Any) -> Any:
        watch = _here.watch
        if watch is None or watch.pid != os.getpid() or not refuses(*given, **named):
            return original(*given, **named)
        attempt = f"{module.__name__.lstrip('_')}.{name}"
        watch.attempts.append(attempt)
        raise Refused(attempt)

    return guard


def always(*given: Any, **named: Any) -> bool:
    return True


def is_fatal(number: int) -> bool:
    """Whether a signal would call the run's own handlers, or end the process."""
    if number in GROUP_SIGNALS:
        return True
    if number in HARMLESS_SIGNALS or not 0 < number < signal.NSIG:
        return False
    return _signal.getsignal(number) in (signal.SIG_DFL, None)


def hits_process(pid: int, number: int) -> bool:
    own = (os.getpid(), os.getppid(), 0, -1, -os.getpgrp())
    return pid in own and is_fatal(number)


def hits_group(group: int, number: int) -> bool:
    return group in (os.getpgrp(), 0) and is_fatal(number)


def hits_thread(thread: int, number: int) -> bool:
    return is_fatal(number)


GUARDED: tuple[tuple[ModuleType, str, Callable[..., bool]], ...] = (
    (os, "_exit", always),
    (os, "abort", always),
    (os, "execv", always),
    (os, "execve", always),
    (os, "kill", hits_process),
    (os, "killpg", hits_group),
    (signal, "raise_signal", is_fatal),
    (signal, "pthread_kill", hits_thread),
    (_thread, "interrupt_main", always),
)
