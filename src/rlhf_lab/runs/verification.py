"""Whether the files of a run are those that it wrote, and whether their numbers can be true.

Readers of results report what is found and go on; readers of weights refuse files that differ. What
a run recorded nothing of is never a finding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import CONFIG, GROWING, MANIFEST, POLICY
from rlhf_lab.runs.jsonl import KINDS, read_rows
from rlhf_lab.runs.manifest import DIGEST, read_manifest, sealed, state_in
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.row_digests import EMPTY, Extent, extent_of

WEIGHTS = "weights"
# Folders whose files may have many GiB.
LARGE = (f"{WEIGHTS}/", f"{POLICY}/")
# Seconds of one trainer, one after the other.
TRAINER = tuple(
    f"seconds/{phase}"
    for phase in ("take", "reference", "update", "probe", "sync", "track", "save", "checkpoint")
)
# What `other` is the rest of, where the trainer generates by itself and where it waits.
ALONE = ("seconds/train", "seconds/generate", "seconds/score", "seconds/other")
WAITING = ("seconds/train", "seconds/wait", "seconds/other")
SLACK = 1e-6


def changed_files(folder: Path, manifest: Mapping[str, Any], with_large: bool = False) -> list[str]:
    """What is wrong with each file that a run recorded. with_large: weights and policy too."""
    found = []
    if DIGEST in manifest and manifest[DIGEST] != sealed(manifest)[DIGEST]:
        found.append(f"{folder / MANIFEST}: a value was changed after the run wrote it")
    for name in manifest.get("records", {}):
        if with_large or not name.startswith(LARGE):
            found += changes_of(folder, name, manifest)
    return found


def changes_of(folder: Path, name: str, manifest: Mapping[str, Any]) -> list[str]:
    """What is wrong with a file of a run, in a line, if it is not what the run wrote."""
    path, wrote = folder / name, manifest.get("records", {}).get(name)
    if wrote is None:
        return []
    try:
        there = extent_of(path)
    except OSError as error:
        return [f"{path}: it cannot be read ({error.strerror})"]
    wanted = Extent(**{"rows": there.rows, **wrote})
    if there == wanted:
        return []
    if there == EMPTY and not path.is_file():
        return [f"{path}: it is missing, the run wrote {wanted.size} bytes"]
    if "rows" not in wrote:
        return [f"{path}: it is not the file that the run wrote"]
    if there.rows != wanted.rows:
        return [f"{path}: it has {there.rows} rows, of {wanted.rows} that the run wrote"]
    return [f"{path}: its {wanted.rows} rows are not those that the run wrote"]


def require_recorded(run: Path, path: Path) -> None:
    """Raise Unreadable if a file is not the one that its run recorded."""
    if changes_of(run, str(path.relative_to(run)), read_manifest(run / MANIFEST)):
        raise Unreadable(path, "it is not the file that the run wrote: restore it from a copy")


def contradictions(rows: Sequence[Mapping[str, Any]], path: Path) -> list[str]:
    """The first number of each kind that contradicts others of its row."""
    found: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        for what in (*outside_bounds(row), *overlong_phases(row)):
            found.setdefault(what.partition(" ")[0], f"{path}, line {number}: {what}")
    return list(found.values())


def outside_bounds(row: Mapping[str, Any]) -> Iterator[str]:
    """Numbers that are not between NAME_low and NAME_high."""
    for key in row:
        name = key.removesuffix("_low")
        numbers = numbers_of(row, (key, name, f"{name}_high"))
        if name == key or not numbers:
            continue
        low, value, high = numbers
        if not low - SLACK <= value <= high + SLACK:
            yield f"{name} is {value}, outside of its bounds {low} and {high}"


def numbers_of(row: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    """The numbers of these names; none if one of them is missing or no float64."""
    found = [one for name in names if isinstance(one := row.get(name), int | float)]
    is_whole = len(found) == len(names) and all(abs(one) <= sys.float_info.max for one in found)
    return list(map(float, found)) if is_whole else []


def overlong_phases(row: Mapping[str, Any]) -> Iterator[str]:
    """Phases that together take longer than the wall-clock, so that one is counted twice."""
    is_alone = row.get("seconds/take") and not row.get("seconds/wait")
    for names in (TRAINER, ALONE if is_alone else WAITING):
        *parts, wall = numbers_of(row, (*names, "seconds/wall")) or (0.0,)
        if (total := sum(parts)) > wall * (1 + SLACK) + SLACK:
            listed = ", ".join(name.removeprefix("seconds/") for name in names)
            yield f"seconds/wall is {wall:.3f}, less than the sum of {listed}: {total:.3f}"


def unrecorded(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The files of a run, by their paths in it, that it recorded nothing of."""
    rows = {path.name for kind in (*KINDS, "samples*.jsonl") for path in folder.glob(kind)}
    large = (str(path.relative_to(folder)) for part in LARGE for path in files_below(folder / part))
    wanted = {*rows, *(name for name in (CONFIG,) if (folder / name).is_file()), *large}
    return sorted(wanted - manifest.get("records", {}).keys())


def files_below(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def verify_run(folder: Path) -> tuple[list[str], list[str]]:
    """The findings about all files of a run, and the names of those without a record. Of a run at
    work the files that grow are read but not compared."""
    try:
        manifest = read_manifest(folder / MANIFEST)
    except Unreadable as error:
        return [f"{error}"], []
    found = changed_files(folder, manifest, with_large=True)
    for kind in KINDS:
        for path in sorted(folder.glob(kind)):
            try:
                found += contradictions(read_rows(path), path)
            except Unreadable as error:
                found.append(str(error))
    missing = unrecorded(folder, manifest)
    if state_in(manifest) == "running":
        missing = [name for name in missing if name not in GROWING]
    return found, missing
