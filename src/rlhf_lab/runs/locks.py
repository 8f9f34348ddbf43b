"""Locks between processes, which the kernel frees when their owner ends, however it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rlhf_lab.types.errors import UserError

# Set to "off" where the file system has no locks.
SWITCH = "RLHF_LAB_LOCKS"
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def locked(path: Path, report_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file while the block runs; wait for it if another process has it.

    report_wait is called once before a wait. Network file systems with locks (NFS 4, Lustre with
    flock) free the lock of a dead process too.
    """
    with ExitStack() as stack:
        if not stack.enter_context(try_lock(path)):
            report_wait()
            stack.enter_context(FileLock(path, fallback_to_soft=False))
        yield


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Whether this process got the lock of a file, which it then holds while the block runs.

    With locks switched off it always gets it, and nothing keeps two processes apart. Raises
    UserError if the file system has no locks and they are not switched off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.environ.get(SWITCH) == "off":
        yield True
        return
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        raise UserError(
            f"{path} cannot be locked: its file system has no locks ({error.strerror}); choose a "
            f"folder on another one, or set {SWITCH}=off in the environment and let no two "
            "processes use the folder at once"
        ) from error
    try:
        yield True
    finally:
        lock.release()


def is_free(path: Path) -> bool:
    """Whether no process holds the lock of a file at this moment."""
    if not path.exists():
        return True
    with try_lock(path) as was_free:
        return was_free
