"""sweep.json: the jobs that a sweep's folder is for, so that no other sweep writes into it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Required

from typing_extensions import TypedDict

from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.folder import MANIFEST, now
from rlhf_lab.runs.identity import RULE
from rlhf_lab.runs.locks import locked
from rlhf_lab.runs.reading import Unreadable, checked, read_json
from rlhf_lab.types.errors import UserError

RECORD = "sweep.json"
LOCK = ".sweep.lock"


@dataclass(frozen=True)
class SweepRecord:
    """A sweep as sweep.json stores it. base: hash of the settings that all jobs share. jobs:
    content hash of each job by name. folders: folder of each job by name, from the sweep's."""

    command: str
    name: str
    fixed: tuple[str, ...]
    swept: Mapping[str, tuple[str, ...]]
    base: str
    code: str
    jobs: Mapping[str, str]
    folders: Mapping[str, str]


class SweepFile(TypedDict, total=False):
    """The keys of sweep.json that are read again."""

    base: Required[str]
    jobs: Required[dict[str, str]]
    folders: Required[dict[str, str]]
    fixed: list[str]
    started: str


def write_record(folder: Path, sweep: SweepRecord, may_extend: bool) -> None:
    """Write sweep.json. Further jobs that it lists already stay in it."""
    with locked(folder / LOCK):
        before = check_record(folder, sweep, may_extend)
        theirs: dict[str, str] = before.get("jobs", {})
        started = {"started": before.get("started", now())}
        whole = {"jobs": theirs | dict(sweep.jobs)}
        whole["folders"] = before.get("folders", {}) | dict(sweep.folders)
        facts = asdict(sweep) | started | whole
        atomic_write(folder / RECORD, json.dumps(facts, indent=1) + "\n")


def from_sweep(job: Path, sweep: Path) -> str:
    """A job's folder as sweep.json has it: from the sweep's folder, whatever the working folder."""
    return os.path.relpath(job.absolute(), sweep.absolute())


def job_folders(folder: Path, record: Mapping[str, Any]) -> dict[str, Path]:
    """The folder of each job of a record, absolute.

    Records of before 0.2 have folders from where the sweep was started, or absolute ones; the sweep
    may have been moved since, with its jobs in it.
    """
    return {name: job_folder(folder, name, text) for name, text in record["folders"].items()}


def job_folder(folder: Path, name: str, recorded: str) -> Path:
    """Where a job is, or else where it would be written."""
    places = [folder / recorded, folder / name, Path(recorded)]
    whole = list(map(same_path, places))
    return next((place for place in whole if (place / MANIFEST).exists()), whole[0])


def same_path(path: Path) -> Path:
    """An absolute path without `..` and links, to compare with others."""
    return Path(os.path.realpath(path))


def check_record(folder: Path, sweep: SweepRecord, may_extend: bool) -> dict[str, Any]:
    """The folder's record so far, empty if there is none. Raises UserError if it has other settings
    or, unless may_extend, fewer jobs."""
    before = read_record(folder)
    if not before:
        return before
    theirs = before["jobs"]
    others = [name for name, content in sweep.jobs.items() if theirs.get(name, content) != content]
    # Where hashes are of another rule, the folders of the jobs show what they are.
    is_of_rule = before["base"].startswith(RULE)
    if is_of_rule and (others or before["base"] != sweep.base):
        what = f"where {others[0]!r} has other settings" if others else "with other shared settings"
        raise UserError(
            f"{folder} holds an older sweep {what} (started {before.get('started')} with "
            f"{' '.join(before.get('fixed', [])) or 'no overrides'}): pass "
            "another output.root, or move that folder away"
        )
    added = [name for name in sweep.jobs if name not in theirs]
    if added and not may_extend:
        more = f" and {len(added) - 1} more" if added[1:] else ""
        raise UserError(
            f"{folder} holds a sweep of {len(theirs)} jobs without {added[0]!r}{more}: to add to "
            "it pass hydra.sweeper.extend=true (make sweep ... EXTEND=1), to keep them apart "
            "another output.root"
        )
    return before


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a sweep's folder, empty if there is none."""
    path = folder / RECORD
    if not os.path.lexists(path):
        return {}
    try:
        record = read_json(path, dict[str, Any])
        checked(record, SweepFile, path)
        if lost := record["jobs"].keys() - record["folders"].keys():
            raise Unreadable(path, f"it has no folder of the job {min(lost)}")
    except Unreadable as error:
        raise UserError(f"{error}: move {folder} away, or restore the file") from error
    return record
