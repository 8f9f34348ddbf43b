"""Locks between processes that a killed holder does not leave behind."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlhf_lab.types.errors import UserError

# Set to "off" where the file system has no locks.
SWITCH = "RLHF_LAB_LOCKS"
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def held(path: Path, say_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file while the block runs, after whoever has it now.

    say_waiting is called once if somebody has it. The kernel frees the lock of a dead process, also
    on network file systems that have locks (NFS 4, Lustre with flock).
    """
    with opened(path) as descriptor:
        if not taken(descriptor, path):
            say_waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Whether this process got the lock of a file, which it then holds while the block runs."""
    with opened(path) as descriptor:
        yield taken(descriptor, path)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock of a file at this moment."""
    if not path.exists():
        return True
    with try_lock(path) as was_free:
        return was_free


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the file, which is made if need be; children do not inherit it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def taken(descriptor: int, path: Path) -> bool:
    """Whether the lock of the file was free, and is now held. Without locks it always is: then
    nothing keeps two processes apart.

    Raises UserError if the file system has no locks and they are not switched off.
    """
    if os.environ.get(SWITCH) == "off":
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        raise UserError(
            f"{path} cannot be locked: its file system has no locks ({error.strerror}); choose a "
            f"folder on another one, or set {SWITCH}=off in the environment and let no two "
            "processes use the folder at once"
        ) from error
    return True
