"""State of the process and of torch that a run needs, and that foreign code must not change.

The environment and global random numbers are not checked: libraries change them when they are
loaded, and no run depends on them.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

from rlhf_lab.runs.child_side import GROUP_SIGNALS

OUTPUTS = (0, 1, 2)
# Device and number of a file; None where a descriptor is closed.
Files = Mapping[int, tuple[int, int] | None]
# Descriptors of files that the run writes to as long as it goes on.
_kept: set[int] = set()


@dataclass(frozen=True)
class Part:
    """A part of the state. text: for messages, if it changed. is_undone: `restore` undoes it."""

    text: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any]
    differs: Callable[[Any, Any], bool] = ne
    is_undone: bool = True


def keep_open(descriptor: int) -> None:
    """Protect a descriptor from foreign code."""
    _kept.add(descriptor)


def release(descriptor: int) -> None:
    """End the protection of a descriptor."""
    _kept.discard(descriptor)


def now() -> Sequence[Any]:
    """The state of this process and thread, for `restore_changes`."""
    return [part.read() for part in parts()]


def restore_changes(before: Sequence[Any]) -> list[Part]:
    """Restore the parts that changed since then, where possible, and return them."""
    # Without torch before, there is nothing to compare torch with.
    pairs = zip(parts(), before, strict=False)
    changes = [(part, old) for part, old in pairs if part.differs(old, part.read())]
    for part, old in changes:
        part.restore(old)
    return [part for part, _ in changes]


def parts() -> Sequence[Part]:
    return ALL if "torch" in sys.modules else PROCESS


def working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def go_back(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.chdir(folder)


def files() -> Files:
    return {descriptor: file_of(descriptor) for descriptor in (*OUTPUTS, *tuple(_kept))}


def file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def were_closed(old: Files, new: Files) -> bool:
    """Whether a descriptor was closed, or refers to another file. The run itself may have closed
    some meanwhile, in another thread: they are no longer in `_kept`."""
    return any(
        new.get(descriptor, file) != file
        for descriptor, file in old.items()
        if descriptor in OUTPUTS or descriptor in _kept
    )


def fill_outputs(old: Files) -> None:
    """Open /dev/null under the number of a closed output, so that no file of the run gets it."""
    for descriptor in OUTPUTS:
        if old[descriptor] is not None and file_of(descriptor) is None:
            empty = os.open(os.devnull, os.O_RDWR)
            if empty != descriptor:
                os.dup2(empty, descriptor)
                os.close(empty)


def handlers() -> Sequence[Any]:
    return [_signal.getsignal(number) for number in GROUP_SIGNALS]


def set_handlers(old: Sequence[Any]) -> None:
    with contextlib.suppress(ValueError):  # only main threads can, and only they can change them
        for number, handler in zip(GROUP_SIGNALS, old, strict=True):
            signal.signal(number, handler)


def has_timer() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def stop_timer(_: bool) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


def was_set(old: bool, new: bool) -> bool:
    """Whether a timer was added. Timers of before may end at any time."""
    return new and not old


def of_torch(name: str) -> Callable[..., Any]:
    """A function of torch, which is not imported here."""

    def function(*given: Any) -> Any:
        return getattr(sys.modules["torch"], name)(*given)

    return function


def default_device() -> Any:
    # torch.get_default_device takes five times as long.
    return of_torch("empty")(0).device


PROCESS = (
    Part("changed the working folder", working_folder, go_back),
    Part(
        "closed or replaced file descriptors of the run",
        files,
        fill_outputs,
        were_closed,
        is_undone=False,
    ),
    Part("changed the run's signal handlers", handlers, set_handlers),
    Part("left a timer that sends SIGALRM", has_timer, stop_timer, was_set),
)
ALL = (
    *PROCESS,
    Part(
        "changed torch's default type of numbers",
        of_torch("get_default_dtype"),
        of_torch("set_default_dtype"),
    ),
    Part(
        "switched torch's gradients on or off",
        of_torch("is_grad_enabled"),
        of_torch("set_grad_enabled"),
    ),
    # What entered the mode must leave it.
    Part(
        "left torch in inference mode",
        of_torch("is_inference_mode_enabled"),
        lambda old: None,
        is_undone=False,
    ),
    Part(
        "changed torch's number of threads",
        of_torch("get_num_threads"),
        of_torch("set_num_threads"),
    ),
    Part("changed torch's default device", default_device, of_torch("set_default_device")),
    Part(
        "switched torch's deterministic algorithms on or off",
        of_torch("are_deterministic_algorithms_enabled"),
        of_torch("use_deterministic_algorithms"),
    ),
    Part(
        "changed torch's precision of matrix products",
        of_torch("get_float32_matmul_precision"),
        of_torch("set_float32_matmul_precision"),
    ),
)
