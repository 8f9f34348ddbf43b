"""Code that users bring: what it raises is a ForeignFailure, with the name of the code.

Reward functions run in processes that they cannot leave (`rewards.worker_child`). What runs in the
run's own process (packages of tasks, modules of plugins) may raise what it likes; a crash ends the
run: `rlhf-lab runs` shows it as died, and `rlhf-lab resume` resumes from the last checkpoint.
"""

from __future__ import annotations

import os
import reprlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rlhf_lab.types.errors import StopRequested

T = TypeVar("T")
# Where installed packages are, in the words of sysconfig.
PACKAGES = ("purelib", "platlib")


class ForeignFailure(RuntimeError):
    """Foreign code raised, or ended its process. The message names the code and what it did."""


def call(name: str, function: Callable[[], T]) -> T:
    """The function's value. name: of the code, in messages. Raises ForeignFailure; signals to the
    run pass through."""
    try:
        return function()
    except (KeyboardInterrupt, StopRequested):
        raise
    except BaseException as error:
        raise ForeignFailure(f"{name} {ending(error)}") from error


def ending(error: BaseException) -> str:
    """How code ended that did not simply return."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return f"failed ({described(error)})"
    if isinstance(error, SystemExit):
        return f"called sys.exit({shown(error.code)})"
    return f"raised {described(error)}"


def described(error: BaseException) -> str:
    """An error's type and text, also if str() of it fails."""
    try:
        text = str(error)
    except BaseException:
        text = "str() of it failed"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown(value: object) -> str:
    """A value in a message, shortened."""
    return reprlib.repr(value)


@contextmanager
def no_quiet_end() -> Iterator[None]:
    """Make sys.exit inside of the block an error: it must not look like the end of a command."""
    pid = os.getpid()
    try:
        yield
    except SystemExit as error:
        if os.getpid() != pid:
            raise
        raise RuntimeError(
            f"sys.exit({shown(error.code)}) was called in the middle of the run: return a "
            "value or raise an exception"
        ) from error


def see_working_folder() -> None:
    """Make modules of the working folder importable, as they are under python -m, but behind those
    of Python itself: libraries import queue and statistics later."""
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        paths = sysconfig.get_paths()
        packages = [sys.path.index(paths[one]) for one in PACKAGES if paths[one] in sys.path]
        sys.path.insert(min(packages, default=len(sys.path)), folder)


def copied(value: Any) -> Any:
    """The value with copies of its containers, which hold the same other objects."""
    kind = type(value)
    if kind is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if kind is list:
        return [copied(inner) for inner in value]
    if kind is tuple:
        return tuple([copied(inner) for inner in value])
    if kind in (set, bytearray):
        return kind(value)
    return value
