"""Products of the stages, kept under the hash of everything that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlhf_lab.runs import atomic_folder
from rlhf_lab.runs.disk import refusing
from rlhf_lab.runs.folder import config_hash
from rlhf_lab.runs.locks import locked
from rlhf_lab.types.errors import UserError


def place(root: Path, stage: str, key: Mapping[str, Any]) -> Path:
    """The folder that a stage's product has, or will have."""
    return root / stage / config_hash(key)


def lock_of(folder: Path) -> Path:
    """Who makes a product holds this file's lock meanwhile."""
    return folder.with_name(f".{folder.name}.lock")


def cached(
    root: Path,
    stage: str,
    key: Mapping[str, Any],
    make: Callable[[Path], None],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Path, bool]:
    """The folder of a stage's product, made by `make(draft)` unless it is there already.

    Returns the folder and whether it was found. The folder appears in one step, after all of its
    files, with their digests; an entry that was cut short later is refused. Of several processes
    that need it one makes it, and the others say so and wait.
    """
    folder = place(root, stage, key)

    def waits() -> None:
        say(f"waiting for {folder}: another process makes it")

    if not folder.exists():
        with ExitStack() as stack:
            with refusing(f"output.cache={root}"):
                stack.enter_context(locked(lock_of(folder), waits))
            if not folder.exists():
                with refusing(f"output.cache={root}"):
                    making = atomic_folder.atomic_folder(folder, {"stage": stage, "key": key})
                    draft = stack.enter_context(making)
                make(draft)
                return folder, False
    verify(folder)
    return folder, True


def verify(folder: Path) -> None:
    """Refuse an entry whose files are missing, changed or cut short."""
    try:
        atomic_folder.verify(folder)
    except atomic_folder.CorruptFolder as error:
        raise UserError(
            f"cache entry {error}: delete it (rm -r {folder}) and run again to make it anew"
        ) from error
