"""Writing to a disk that may be full, read-only or somebody else's: what went wrong in a line, and
files that a group can read where the umask lets it."""

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
# How libraries in Rust, which raise kinds of their own, name an error of the system.
OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
STATUS = Path("/proc/self/status")


def fault_of(error: BaseException) -> OSError | None:
    """The error of a disk or a folder behind an exception, None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL | CLOSED:
            return seen
        seen = seen.__cause__
    return None


def fault_text(fault: OSError) -> str:
    """The fault in a line: the path, what is wrong with it, and what to do."""
    where = fault.filename2 or fault.filename
    remedy = (
        "free space, or choose another disk"
        if fault.errno in FULL
        else "name another folder, or have its rights changed"
    )
    text = f"{os.fsdecode(where)}: {fault.strerror}" if where is not None else str(fault)
    return f"{text}: {remedy}"


@contextmanager
def refusing(option: str) -> Iterator[None]:
    """Around what is written for an option, before any step: a folder that cannot be written is
    refused with it."""
    try:
        yield
    except OSError as error:
        if error.errno not in CLOSED:
            raise
        raise UserError(f"{option}: {fault_text(error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around a library that saves a file or folder: what it calls an error of the system is an
    OSError that names the path."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if not (match := OF_SYSTEM.search(str(error))):
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), str(path)) from error


def save_file(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Tensors as a file of safetensors, in one step."""
    from safetensors import torch as safetensors  # here, so that readers of runs start without it

    with writing(path):
        safetensors.save_file(dict(tensors), path)
    follow_umask(path)


def follow_umask(path: Path) -> None:
    """Give a file, or a folder and all in it, the rights that new ones have: temporary ones, and
    those of safetensors, are for their owner alone."""
    mask = umask()
    for part in (path, *(path.rglob("*") if path.is_dir() else ())):
        mode = part.lstat().st_mode
        if part.is_dir() and not part.is_symlink():
            # The group of a shared folder is handed on by its special bits.
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
