"""Products of the stages, kept under the hash of everything that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab import sealed
from rlhf_lab.runs import config_hash
from rlhf_lab.types import UserError


def cached(
    root: Path, stage: str, key: Mapping[str, Any], make: Callable[[Path], None]
) -> tuple[Path, bool]:
    """The folder of a stage's product, made by `make(folder)` unless it is there already.

    Returns the folder and whether it was found. The folder appears in one step, after all of its
    files, with their digests; an entry that was cut short later is refused.
    """
    folder = root / stage / config_hash(key)
    if folder.exists():
        verify(folder)
        return folder, True
    with sealed.sealed(folder, {"stage": stage, "key": key}) as draft:
        make(draft)
    return folder, False


def verify(folder: Path) -> None:
    """Refuse an entry whose files are missing, changed or cut short."""
    try:
        sealed.verify(folder)
    except sealed.Damaged as error:
        raise UserError(
            f"cache entry {error}: delete it (rm -r {folder}) and run again to make it anew"
        ) from error
