"""Code that users bring: what it raises is a ForeignFailure, with the name of the code.

Reward functions run in processes that they cannot leave (`rewards.worker_child`). What runs in the
run's own process (packages of tasks, modules of plugins) may raise what it likes; a crash ends the
run: `rlhf-lab runs` shows it as died, and `rlhf-lab resume` resumes from the last checkpoint.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rlhf_lab.types.errors import StopRequested

T = TypeVar("T")
FRAME = re.compile(r'\s*File "([^"]+)", line \d+')
# Folders of packages, in the words of sysconfig.
PACKAGES = ("purelib", "platlib")
# Folders whose code is not the user's: this package and its plugins of Hydra, and Python.
SOURCE = Path(__file__).parents[2]
NOT_OWN = (
    *(f"{SOURCE / name}{os.sep}" for name in ("rlhf_lab", "hydra_plugins")),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", *PACKAGES)),
)


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


def own_frames(text: str) -> list[str]:
    """The lines of a traceback that are of the user's own files, and not of this package, Python or
    what is installed; with the tracebacks of other processes that are in it."""
    own: list[str] = []
    is_own = False
    for line in text.splitlines():
        if found := FRAME.match(line):
            file = found[1]
            is_own = not file.startswith(("<", *NOT_OWN)) and "site-packages" not in file
        elif not line.startswith("    "):
            is_own = False  # the error itself, or the next traceback
        if is_own and line.strip(" ^~"):
            own.append(line)
    return own


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
