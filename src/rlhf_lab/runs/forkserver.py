"""Processes from a server that has everything imported: one is there in a tenth of a second.

Multiprocessing's fork server is one per process. It starts with the first child, or with `warm`,
and ends when all processes that may use it have ended. Its children start their own from it too.
Signals to a process group, or to all processes of a Slurm step, do not reach it: it must not end
before a trainer has saved its state, which needs its generators for that.
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

from rlhf_lab.types.errors import UserError

METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
# Everything that a job or a generator imports.
PRELOAD = [__name__, "rlhf_lab.cli.main", "rlhf_lab.cli.compose", "rlhf_lab.experiment.lifecycle"]
# What schedulers and terminals send to everybody. Held back in the server and in a child until it
# knows what to do with them, so that none is lost.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

# 107 bytes without /pymp-xxxxxxxx/listener-xxxxxxxx.
LONGEST_FOLDER = 75

_server: Any = forkserver._forkserver
# Whose child this process is, if the server made it.
_server_pid: int | None = None
# Generators are started again by threads, and the main module has but one name to hide.
_starting = threading.RLock()


def start(
    target: Callable[..., object],
    args: Sequence[Any] = (),
    *,
    name: str | None = None,
    daemon: bool | None = None,
    is_deaf: bool = False,
) -> BaseProcess:
    """A process that calls the target, with this one's environment, output and working folder.

    name: what `ps -o comm` and `top` show. is_deaf: it ignores SIGNALS from its first moment on;
    otherwise they do what they do by default. The main module of this process is not imported.
    """
    context: Any = multiprocessing.get_context(METHOD)
    # A child that is spawned has them anyway.
    passed = (1, 2) if METHOD == "forkserver" else ()
    outputs = tuple(Output(number) for number in passed if is_open(number))
    with _starting:
        process: BaseProcess = context.Process(
            target=live,
            args=(Surroundings(dict(os.environ), outputs, is_deaf, name), target, tuple(args)),
            name=name,
            daemon=daemon,
        )
        announce_a_known_start_method()
        warm()
        with nameless_main():
            process.start()
    return process


def warm() -> None:
    """Have the server begin its imports, without waiting for them."""
    if METHOD != "forkserver":
        return
    with _starting:
        if _server_pid is not None and os.getppid() == _server_pid:
            # Multiprocessing would start a second server, because it knows only its own.
            _server.ensure_running = resource_tracker.ensure_running
            return
        require_short_folder(tempfile.gettempdir())
        vars(_server).pop("ensure_running", None)
        forkserver.set_forkserver_preload(PRELOAD)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # It lets some of them through again.
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require_short_folder(folder: str) -> None:
    """Refuse a folder for temporary files where the server's socket would have too long a name:
    the kernel allows 107 bytes."""
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        raise UserError(
            f"TMPDIR={folder} is too long for the sockets of processes: set TMPDIR to a folder of "
            f"at most {LONGEST_FOLDER} bytes, such as /tmp"
        )


def announce_a_known_start_method() -> None:
    """A child receives the default start method of its parent, and fails if it does not know it:
    launchers add methods to their workers, such as joblib's loky."""
    known = (None, *multiprocessing.get_all_start_methods())
    if multiprocessing.get_start_method(allow_none=True) not in known:
        multiprocessing.set_start_method(METHOD, force=True)


@contextmanager
def nameless_main() -> Iterator[None]:
    """Children would import this process's main module once more, under another name."""
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


class Output:
    """A descriptor that a child shall have under the same number: the server has its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return take_over, (self.number, DupFd(self.number))


def take_over(number: int, sent: Any) -> Output:
    """In the child: have a descriptor that was sent along under its number."""
    descriptor = sent.detach()
    os.dup2(descriptor, number)
    os.close(descriptor)
    return Output(number)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Surroundings:
    """What a child cannot have from the server: that began earlier, perhaps elsewhere."""

    environment: dict[str, str]
    outputs: Sequence[Output]
    is_deaf: bool
    name: str | None


def live(around: Surroundings, target: Callable[..., object], args: tuple[Any, ...]) -> None:
    """The life of a child."""
    global _server_pid
    if METHOD == "forkserver":
        _server_pid = os.getppid()
    multiprocessing.set_start_method(None, force=True)
    os.environ.clear()
    os.environ.update(around.environment)
    if around.name:
        with contextlib.suppress(OSError):  # no Linux
            Path("/proc/self/comm").write_text(around.name)
    for number in SIGNALS if around.is_deaf else ():
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    target(*args)


def leave_no_socket() -> None:
    """Remove what a server's owner that was killed could not: the folder of the server's socket."""
    socket = Path(_server._forkserver_address)
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


if any("multiprocessing.forkserver import main" in word for word in sys.orig_argv):
    atexit.register(leave_no_socket)
