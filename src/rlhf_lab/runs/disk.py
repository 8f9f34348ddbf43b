"""Errors of a full, read-only or protected disk in a line, and files with the rights that the umask
gives."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
CLOSED = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
# An error of the system in the exceptions of libraries in Rust.
OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
STATUS = Path("/proc/self/status")


def disk_error(error: BaseException) -> OSError | None:
    """The error of a disk or a folder that caused an exception; None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL | CLOSED:
            return seen
        seen = seen.__cause__
    return None


def disk_error_text(error: OSError) -> str:
    """The error in a line: the path, the reason, and the remedy."""
    where = error.filename2 or error.filename
    remedy = (
        "free space, or choose another disk"
        if error.errno in FULL
        else "name another folder, or have its rights changed"
    )
    text = f"{os.fsdecode(where)}: {error.strerror}" if where is not None else str(error)
    return f"{text}: {remedy}"


@contextmanager
def refusing(option: str) -> Iterator[None]:
    """Refuse an option whose folder cannot be written; for blocks before the first step."""
    try:
        yield
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        raise UserError(f"{option}: {disk_error_text(error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """For calls of a library that saves a file or folder: its own exceptions for errors of the
    system become an OSError with the path."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if not (match := OF_SYSTEM.search(str(error))):
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), str(path)) from error


def save_file(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors as a safetensors file."""
    from safetensors import torch as safetensors  # here, so that readers of runs start without it

    with writing(path):
        safetensors.save_file(dict(tensors), path)
    follow_umask(path)


def follow_umask(path: Path) -> None:
    """Give a file, or a folder and its contents, the rights of new files; temporary files and
    those of safetensors are for their owner alone."""
    mask = umask()
    for part in (path, *(path.rglob("*") if path.is_dir() else ())):
        mode = part.lstat().st_mode
        if part.is_dir() and not part.is_symlink():
            # The special bits of a shared folder pass its group on.
            part.chmod(mode & 0o7000 | 0o777 & ~mask)
        elif part.is_file() and not part.is_symlink():
            part.chmod(mode & 0o111 | 0o666 & ~mask)


def umask() -> int:
    """The bits that new files do not get."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration):
        # Other systems show it only when it is changed, which other threads may see.
        mask = os.umask(0o022)
        os.umask(mask)
        return mask
