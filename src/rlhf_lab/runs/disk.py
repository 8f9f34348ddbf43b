"""Files and folders that appear whole or not at all, the rights that the umask gives, and errors of
a full, read-only or protected disk.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rlhf_lab.runs.reading import Unreadable, checked, read_json
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
CLOSED = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
# What file systems answer to what they do not have: rights, or folders that are flushed.
UNSUPPORTED = {errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# An error of the system in the exceptions of libraries in Rust.
OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
ENTRY = "entry.json"
DRAFT = ".making-"
NONE: Mapping[str, str] = {}
# Of runs of version 0.1.
OLD_DRAFTS = (".manifest-", ".config-")


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
    """For calls that save a file or folder: errors of the disk get its path, unless they have one,
    and a library's own exceptions for errors of the system become an OSError with it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FULL | CLOSED:
            error.filename = str(path)
        raise
    except Exception as error:
        if not (match := OF_SYSTEM.search(str(error))):
            raise
        raise OSError(int(match[1]), os.strerror(int(match[1])), str(path)) from error


def save_file(tensors: Mapping[str, Tensor], path: Path) -> None:
    from safetensors import torch as safetensors  # here, so that readers of runs start without it

    with writing(path):
        safetensors.save_file(dict(tensors), path)
    follow_umask(path)


def follow_umask(path: Path) -> None:
    """Give a file, or a folder and its contents, the rights of new files; temporary files and
    those of safetensors are for their owner alone."""
    mask = umask(path if path.is_dir() else path.parent)
    for part in (path, *(path.rglob("*") if path.is_dir() else ())):
        mode = part.lstat().st_mode
        if part.is_dir() and not part.is_symlink():
            # The special bits of a shared folder pass its group on.
            wanted = mode & 0o7000 | 0o777 & ~mask
        elif part.is_file() and not part.is_symlink():
            wanted = mode & 0o111 | 0o666 & ~mask
        else:
            continue
        with where_supported():
            part.chmod(wanted)


@contextmanager
def where_supported() -> Iterator[None]:
    """For what is right without it, where the file system does not have it."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise


def umask(folder: Path) -> int:
    """The bits that new files and folders in a folder do not get. Found by a file, since the system
    shows them only to a process that changes them, for its other threads too."""
    probe = folder / f"{DRAFT}{uuid4().hex[:12]}"
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL, 0o777)
    try:
        return 0o777 & ~os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
        probe.unlink()


class CorruptFolder(Exception):
    """A file of an atomic folder is missing, changed or cut short."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A draft to write; on leaving, it takes the place of `path` in one step. On any error the
    draft is removed. Raises FileExistsError for a device, a pipe or a folder, which stay."""
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is no regular file", str(path))
    draft = path.with_name(f"{DRAFT}{uuid4().hex[:12]}-{path.name}")
    try:
        with writing(path):
            yield draft
            os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def atomic_write(path: Path, text: str) -> None:
    with atomic_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(
    folder: Path, facts: Mapping[str, Any], digests: Mapping[str, str] = NONE
) -> Iterator[Path]:
    """A draft folder to fill; on leaving, it appears as `folder`, with digests of its files.

    All data reach the disk before the name does. If another process was first, its folder stays.
    On any error the draft is removed. digests: those known by then, by paths in the folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{DRAFT}{folder.name}-", dir=folder.parent))
    try:
        yield draft
        with writing(folder):
            names = {str(path.relative_to(draft)): path for path in files_in(draft)}
            files = {name: digests.get(name) or file_digest(path) for name, path in names.items()}
            entry = {**facts, "files": files}
            atomic_write(draft / ENTRY, json.dumps(entry, indent=1, sort_keys=True))
            follow_umask(draft)
            for path in [*files_in(draft), draft / ENTRY]:
                flush(path)
            try:
                os.rename(draft, folder)
            except OSError:
                if not folder.exists():
                    raise
                verify(folder)
            flush(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def verify(folder: Path, needed: Sequence[str] = ()) -> dict[str, Any]:
    """The entry of an atomic folder, whose files all have their digests. Raises CorruptFolder,
    naming the file. needed: files that the entry must list."""
    try:
        entry = read_json(folder / ENTRY, dict[str, Any])
        files = checked(entry.get("files"), dict[str, str], folder / ENTRY, "key files")
    except Unreadable as error:
        raise CorruptFolder(f"{folder} has no readable {ENTRY} ({error.reason})") from error
    for name in needed:
        if name not in files:
            raise CorruptFolder(f"{folder} lacks its file {name}")
    for name, digest in files.items():
        path = folder / name
        try:
            found = file_digest(path) if path.is_file() else ""
        except OSError as error:
            reason = f"{name[:60]} cannot be read ({error.strerror})"
            raise CorruptFolder(f"{folder}: {reason}") from error
        if not found:
            raise CorruptFolder(f"{folder} lacks its file {name}")
        if found != digest:
            raise CorruptFolder(f"{folder} is damaged: {name} was cut short or changed")
    return entry


def remove_drafts(parent: Path, name: str = "") -> None:
    """Remove drafts that killed processes left, of everything in a folder or of the folder `name`
    in it. Only for what this process has locked."""
    for prefix in (f"{DRAFT}{name}-",) if name else (DRAFT, *OLD_DRAFTS):
        for draft in parent.glob(f"{prefix}*"):
            discard(draft)


def discard(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def files_in(folder: Path) -> list[Path]:
    """All files below a folder but the entry itself."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ENTRY)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Force a file to the disk, or a folder where the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with where_supported() if path.is_dir() else writing(path):
            # The fsync of macOS leaves data in the disk's cache.
            if full := getattr(fcntl, "F_FULLFSYNC", None):
                fcntl.fcntl(descriptor, full)
            else:
                os.fsync(descriptor)
    finally:
        os.close(descriptor)
