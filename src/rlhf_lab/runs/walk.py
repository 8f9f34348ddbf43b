"""Folders of runs and what lies beside them: one way to search, for every command that reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rlhf_lab.runs.folder import CONFIG, MANIFEST, METRICS
from rlhf_lab.runs.reading import Unreadable, unreadable


def is_run(files: Collection[str]) -> bool:
    """Whether a folder with these files is a run's, be it one that lost its manifest."""
    return MANIFEST in files or (METRICS in files and CONFIG in files)


def walk(
    root: Path, problems: list[Unreadable], *, into_runs: bool = False
) -> Iterator[tuple[Path, list[str]]]:
    """Every folder at root and below it, with the names of its files. Hidden files and folders are
    left out, and what is below a run unless `into_runs`.

    Links are followed, each folder is met once, under its own path if that is below root.
    problems: gets the folders that cannot be read, and links to nowhere.
    """
    # A link to a folder above root would lead to everything there.
    met = {identity(parent) for parent in root.resolve().parents}

    def report(error: OSError) -> None:
        # What another process has removed meanwhile is not there.
        if not isinstance(error, FileNotFoundError):
            problems.append(unreadable(error.filename, error))

    queue = [str(root)]
    for start in queue:
        for path, folders, names in os.walk(start, onerror=report):
            if (one := identity(Path(path))) is None or one in met:
                folders.clear()
                continue
            met.add(one)
            files = [name for name in names if not name.startswith(".")]
            yield Path(path), files
            if is_run(files) and not into_runs:
                folders.clear()
                continue
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            queue += (
                place for name in folders if os.path.islink(place := os.path.join(path, name))
            )
            for name in files:
                place = os.path.join(path, name)
                if os.path.islink(place) and not os.path.exists(place):
                    target = os.readlink(place)
                    problems.append(
                        Unreadable(place, f"it is a link to {target}, which is missing")
                    )


def identity(folder: Path) -> tuple[int, int] | None:
    """Device and inode of a folder; None if another process has removed it."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def find(root: Path, is_wanted: Callable[[Path], bool], problems: list[Unreadable]) -> list[Path]:
    """The wanted files in a folder or below it, in runs too, by path; root itself if it is one."""
    if root.is_file():
        return [root]
    every = walk(root, problems, into_runs=True)
    paths = (folder / name for folder, files in every for name in files)
    return sorted(filter(is_wanted, paths))
