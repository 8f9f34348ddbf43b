"""Child processes forked from a server that has all modules imported: a start takes 0.1 s.

On macOS children are spawned, which takes seconds: libraries of Apple that torch loads (Metal,
CoreFoundation) do not survive a fork. RLHF_LAB_START=forkserver or spawn in the environment
chooses the method.

Multiprocessing's fork server is one per process. It starts with the first child, or with `warm`,
and ends when all processes that may use it have ended. Its children fork theirs from it too.
The server ignores signals to a process group or a Slurm step: it must not end before a trainer has
saved its state, which needs its generators for that.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from rlhf_lab.runs.child import (
    GROUP_SIGNALS,
    forget_safe_path,
    ignore_group_signals,
    reset_group_signals,
    safe_path,
)
from rlhf_lab.runs.output import protect_output
from rlhf_lab.types.errors import UserError

# Names the start method: forkserver or spawn.
SWITCH = "RLHF_LAB_START"
# All that a job or a generator imports.
PRELOAD = [
    *(__name__, "rlhf_lab.cli.main", "rlhf_lab.cli.compose", "rlhf_lab.experiment.run.lifecycle"),
    "rlhf_lab.experiment.config.preloaded",
]

# The kernel's limit in bytes, without /pymp-xxxxxxxx/listener-xxxxxxxx.
LONGEST_FOLDER = (103 if sys.platform == "darwin" else 107) - 32

_server: Any = forkserver._forkserver
# The server's pid, in a child that it forked.
_server_pid: int | None = None
# Threads restart generators, and `nameless_main` changes the one main module.
_starting = threading.RLock()


def start(
    target: Callable[..., object],
    args: Sequence[Any] = (),
    *,
    name: str | None = None,
    daemon: bool | None = None,
    ignores_signals: bool = False,
) -> BaseProcess:
    """A process that calls the target, with this one's environment, output and working folder.

    name: shown by `ps -o comm` and `top`. ignores_signals: it ignores GROUP_SIGNALS from its first
    moment on; otherwise they have their default effect. The main module of this process is not
    imported.
    """
    context: Any = multiprocessing.get_context(method())
    outputs = tuple(SentDescriptor(number) for number in (1, 2) if is_open(number))
    with _starting:
        process: BaseProcess = context.Process(
            target=run_target,
            args=(
                ParentState(dict(os.environ), outputs, ignores_signals, name),
                target,
                tuple(args),
            ),
            name=name,
            daemon=daemon,
        )
        # Children know this default start method: they get it from their parent, and launchers add
        # their own to workers, such as joblib's loky.
        known = (None, *multiprocessing.get_all_start_methods())
        if multiprocessing.get_start_method(allow_none=True) not in known:
            multiprocessing.set_start_method(method(), force=True)
        warm()
        with nameless_main(), signals_blocked():
            process.start()
    return process


def method() -> str:
    """How children start. Raises UserError if the environment names another way."""
    chosen = os.environ.get(SWITCH) or ("spawn" if sys.platform == "darwin" else "forkserver")
    if chosen not in ("forkserver", "spawn"):
        raise UserError(f"{SWITCH}={chosen} in the environment: choose forkserver or spawn")
    return chosen


def warm() -> None:
    """Start the server, which imports in the background; nothing where children are spawned."""
    with _starting:
        if _server_pid is not None and os.getppid() == _server_pid:
            # Multiprocessing would start a second server: it does not know its parent's.
            _server.ensure_running = resource_tracker.ensure_running
            return
        require_short_folder(tempfile.gettempdir())
        if method() == "spawn":
            return
        vars(_server).pop("ensure_running", None)
        forkserver.set_forkserver_preload(PRELOAD)
        with signals_blocked():
            forkserver.ensure_running()


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block GROUP_SIGNALS in this thread, and so in what it starts, until that acts on them; what
    it starts has a safe path."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        with safe_path():
            # It unblocks some of them.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_short_folder(folder: str) -> None:
    """Refuse a folder for temporary files in which the path of the server's socket is too long."""
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise UserError(
            f"TMPDIR={folder} is too long for the sockets of processes: set TMPDIR to a folder of "
            f"at most {LONGEST_FOLDER} bytes, such as /tmp"
        )


@contextmanager
def nameless_main() -> Iterator[None]:
    """Hide the main module's name, so that children do not import it a second time."""
    main = sys.modules["__main__"]
    names = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    main.__spec__ = None
    if "__file__" in names:
        del main.__file__
    try:
        yield
    finally:
        for name, value in names.items():
            setattr(main, name, value)


class SentDescriptor:
    """A descriptor that the child gets under the same number, in place of the server's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return receive_output, (self.number, DupFd(self.number))


def receive_output(number: int, sent: Any) -> SentDescriptor:
    """In the child: give a descriptor that was sent its number."""
    descriptor = sent.detach()
    if descriptor != number:  # spawn passes it under its number
        os.dup2(descriptor, number)
        os.close(descriptor)
    return SentDescriptor(number)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class ParentState:
    """State of the parent that a child does not get from the server, which started earlier."""

    environment: dict[str, str]
    outputs: Sequence[SentDescriptor]
    ignores_signals: bool
    name: str | None


def run_target(context: ParentState, target: Callable[..., object], args: tuple[Any, ...]) -> None:
    """In the child: take over the parent's state, then call the target."""
    global _server_pid
    _server_pid = os.getppid()
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(context.environment)
    forget_safe_path()
    if context.name:
        with contextlib.suppress(OSError):  # not Linux
            Path("/proc/self/comm").write_text(context.name)
    if context.ignores_signals:
        ignore_group_signals()
    else:
        reset_group_signals()
    # They were blocked in the server and here until now, so that none is lost.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    protect_output()
    target(*args)


def leave_no_socket() -> None:
    """Remove the folder of the server's socket, which an owner that was killed could not remove."""
    socket = Path(_server._forkserver_address)
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


if any("multiprocessing.forkserver import main" in word for word in sys.orig_argv):
    atexit.register(leave_no_socket)
