"""Products of the stages, kept under the hash of everything that made them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.runs import config_hash, file_digest
from rlhf_lab.types import UserError

ENTRY = "entry.json"


def cached(
    root: Path, stage: str, key: Mapping[str, Any], make: Callable[[Path], None]
) -> tuple[Path, bool]:
    """The folder of a stage's product, made by `make(folder)` unless it is there already.

    Returns the folder and whether it was found. The folder appears in one step, after all of its
    files, with their sizes and digests; an entry that was cut short later is refused.
    """
    folder = root / stage / config_hash(key)
    if folder.exists():
        verify(folder)
        return folder, True
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    try:
        make(draft)
        files = {str(path.relative_to(draft)): file_digest(path) for path in files_in(draft)}
        entry = {"stage": stage, "key": key, "files": files}
        (draft / ENTRY).write_text(json.dumps(entry, indent=1, sort_keys=True), encoding="utf-8")
        publish(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder, False


def publish(draft: Path, folder: Path) -> None:
    """Rename a finished draft into place; another process that was first wins."""
    draft.chmod(0o755)
    try:
        os.rename(draft, folder)
    except OSError:
        if not folder.exists():
            raise
        verify(folder)


def files_in(folder: Path) -> list[Path]:
    """All files below a folder but the entry itself."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ENTRY)


def verify(folder: Path) -> None:
    """Refuse an entry whose files are missing, changed or cut short."""
    remedy = f"delete it (rm -r {folder}) and run again to make it anew"
    try:
        files = json.loads((folder / ENTRY).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"cache entry {folder} has no readable {ENTRY}: {remedy}") from error
    for name, digest in files.items():
        path = folder / name
        if not path.is_file():
            raise UserError(f"cache entry {folder} lacks its file {name}: {remedy}")
        if file_digest(path) != digest:
            raise UserError(
                f"cache entry {folder} is damaged: {name} was cut short or changed: {remedy}"
            )
