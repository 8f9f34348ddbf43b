"""The cache of stages: each product under the hash of all options that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlhf_lab.runs import disk
from rlhf_lab.runs.disk import refusing
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.runs.locks import locked
from rlhf_lab.types.errors import UserError


def product_folder(root: Path, stage: str, key: Mapping[str, Any]) -> Path:
    """The folder of a stage's product, whether it exists or not."""
    return root / stage / hash_of(key)


def lock_file(folder: Path) -> Path:
    """The file whose lock the process that makes a product holds meanwhile."""
    return folder.with_name(f".{folder.name}.lock")


def cached(
    root: Path,
    stage: str,
    key: Mapping[str, Any],
    make: Callable[[Path], None],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Path, bool]:
    """The folder of a stage's product, and whether it was in the cache; otherwise `make(draft)`
    fills a draft of it.

    The folder appears in one step, once all files and their digests are written; a damaged entry is
    refused. Of several processes that need it, one makes it and the others report that they wait.
    """
    folder = product_folder(root, stage, key)

    def waits() -> None:
        say(f"waiting for {folder}: another process makes it")

    if not folder.exists():
        with ExitStack() as stack:
            with refusing(f"output.cache={root}"):
                stack.enter_context(locked(lock_file(folder), waits))
            if not folder.exists():
                with refusing(f"output.cache={root}"):
                    disk.remove_drafts(folder.parent, folder.name)
                    making = disk.atomic_folder(folder, {"stage": stage, "key": key})
                    draft = stack.enter_context(making)
                make(draft)
                return folder, False
    verify(folder)
    return folder, True


def verify(folder: Path) -> None:
    """Refuse an entry whose files are missing, changed or cut short."""
    try:
        disk.verify(folder)
    except disk.CorruptFolder as error:
        raise UserError(
            f"cache entry {error}: delete it (rm -r {folder}) and run again to make it anew"
        ) from error
