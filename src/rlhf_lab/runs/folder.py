"""A run's folder: what is in it, how it is claimed, and how it is read again.

manifest.json   what ran, with what, and how it ended     config.yaml   the resolved config
metrics.jsonl   one row per round                         evals.jsonl   one row per evaluation
schedule.jsonl  which versions wrote each chunk           timeline.jsonl  when what happened
validation.jsonl  what the version is worth at which the run paused or ended (eval.validate)
weights/        the versions that are kept                checkpoints/  to go on from
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from rlhf_lab.runs.atomic_folder import discard
from rlhf_lab.runs.former_names import as_first_recorded
from rlhf_lab.runs.jsonl import Rows, read_rows
from rlhf_lab.runs.kernels import label
from rlhf_lab.runs.provenance import is_alive, provenance
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.recorded import read_manifest
from rlhf_lab.runs.run_lock import LOCK
from rlhf_lab.types.errors import UserError

MANIFEST = "manifest.json"
DRAFT = ".manifest-"
CONFIG = "config.yaml"
CONFIG_DRAFT = ".config-"
METRICS = "metrics.jsonl"
EVALS = "evals.jsonl"
SCHEDULE = "schedule.jsonl"
TIMELINE = "timeline.jsonl"
VALIDATION = "validation.jsonl"
POLICY = "policy"
End = Literal["finished", "failed", "interrupted", "stopped", "paused"]


class RunDirectory:
    """The folder of a run that is going on, owned by this process until `finish`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self._manifest = manifest

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any], config_yaml: str) -> RunDirectory:
        """Claim a new or empty folder and write down what is about to run.

        The manifest appears last, so that whatever has one has its config; a process that was
        killed before that has started no run. Raises UserError if the folder holds anything else.
        Of several processes that want the same folder, exactly one gets it.
        """
        make_folder(folder)
        held = contents(folder, config_yaml)
        if MANIFEST in held:
            raise already_a_run(folder)
        if held:
            raise UserError(
                f"output.dir={folder} is not empty and not a run (it holds {sorted(held)[0]}): "
                "choose a new folder, or leave output.dir empty"
            )
        begun = {"state": "running", "started": now(), "run_id": uuid4().hex[:12]}
        whole = begun | dict(manifest) | provenance()
        try:
            os.replace(write_draft(folder, CONFIG_DRAFT, config_yaml), folder / CONFIG)
            draft = write_draft(folder, DRAFT, as_json(whole))
        except OSError as error:
            raise UserError(
                f"output.dir={folder} cannot be written to ({error.strerror}): choose another"
            ) from error
        try:
            os.link(draft, folder / MANIFEST)
        except FileExistsError as error:
            raise already_a_run(folder) from error
        finally:
            draft.unlink()
        return cls(folder, whole)

    @classmethod
    def resume(cls, folder: Path, manifest: Mapping[str, Any], config_yaml: str) -> RunDirectory:
        """Take over the folder of a run that ended early; a new or empty folder is claimed.

        Raises UserError if the run is going on, or was started with other settings.
        """
        make_folder(folder)
        remove_drafts(folder)
        if MANIFEST not in os.listdir(folder):
            return cls.create(folder, manifest, config_yaml)
        found = summary(folder, folder.name)
        if found.state == "unreadable":
            raise UserError(f"output.dir={folder}: {found.problem}: choose another folder")
        if found.state == "running":
            host, pid = found.manifest["host"]["name"], found.manifest["process"]["pid"]
            raise UserError(
                f"output.dir={folder} is a run that is going on (process {pid} on {host}): wait "
                "for it, or stop it first; if that machine is gone, change its state in "
                f"{MANIFEST} to failed"
            )
        check_same(folder, found.manifest, manifest)
        whole = dict(found.manifest)
        if whole["state"] != "finished":
            before = {"after": found.state, "at": now(), "kernels": kernels_in(whole)}
            ends = [*whole.get("resumed", []), before]
            whole |= {"state": "running", "resumed": ends} | provenance()
        record = cls(folder, whole)
        record.update()
        return record

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self._manifest

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    @property
    def evals(self) -> Path:
        return self.folder / EVALS

    @property
    def weights(self) -> Path:
        return self.folder / "weights"

    def finish(self, state: End, **facts: Any) -> None:
        """Record how and when the run ended, in one step; facts may hold `error`."""
        self.update(state=state, ended=now(), **facts)

    def update(self, **facts: Any) -> None:
        """Record more facts, in one step."""
        self._manifest |= facts
        draft = write_draft(self.folder, DRAFT, as_json(self._manifest))
        os.replace(draft, self.folder / MANIFEST)


def manifest_path(folder: Path) -> Path:
    """A run's manifest. Raises UserError if the folder has none."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(f"{folder} is not a run: it has no {MANIFEST} (see `rlhf-lab runs`)")
    return path


def contents(folder: Path, config_yaml: str) -> set[str]:
    """What a folder holds, without what a process may leave that is killed before its manifest is
    in place: its lock, drafts, and the very config that is to be written."""
    held = {name for name in os.listdir(folder) if not name.startswith((DRAFT, CONFIG_DRAFT))}
    config = folder / CONFIG
    if config.is_file() and config.read_bytes() == config_yaml.encode():
        held.remove(CONFIG)
    return held - {LOCK}


def remove_drafts(folder: Path) -> None:
    """Remove manifests and configs that killed processes left half written. Only for the holder of
    the folder's lock."""
    for draft in (*folder.glob(f"{DRAFT}*"), *folder.glob(f"{CONFIG_DRAFT}*")):
        discard(draft)


def write_draft(folder: Path, prefix: str, text: str) -> Path:
    """A whole file under another name, to be put in place in one step."""
    draft = folder / f"{prefix}{uuid4().hex[:12]}"
    try:
        draft.write_text(text, encoding="utf-8")
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def check_same(folder: Path, was: Mapping[str, Any], now_: Mapping[str, Any]) -> None:
    """A run goes on with the settings it was started with; where it writes may change."""
    if was.get("identity") != now_.get("identity"):
        raise UserError(
            f"output.dir={folder} was started with other settings: `rlhf-lab resume {folder}` goes "
            "on with its own, or choose another folder"
        )


def make_folder(folder: Path, key: str = "output.dir") -> None:
    """Make a folder that an option names, if it is not there. Raises UserError with the key."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{key}={folder} cannot be made ({error.strerror}): choose another folder"
        ) from error


def already_a_run(folder: Path) -> UserError:
    return UserError(
        f"output.dir={folder} already holds a run ({summary(folder, folder.name).state}): "
        "choose another folder, leave output.dir empty, or move that run away"
    )


def new_folder(root: Path, label: str) -> Path:
    """Make `<label>-<date>-<time>` below root, with a number behind it if it is taken."""
    stem = f"{label}-{datetime.now():%Y%m%d-%H%M%S}"
    make_folder(root)
    number = 1
    while True:
        folder = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            os.mkdir(folder)
        except FileExistsError:
            number += 1
        else:
            return folder


def metrics(folder: Path) -> Rows:
    """The rounds of a run; none if it wrote none. Raises UserError on a damaged line."""
    return read_rows(folder / METRICS)


def evals(folder: Path) -> Rows:
    """The evaluations of a run; none if it wrote none. Raises UserError on a damaged line."""
    return read_rows(folder / EVALS)


@dataclass(frozen=True)
class RunSummary:
    """One line of the list of runs.

    state: running, finished, failed, interrupted, stopped (by a signal, to be resumed), paused
    (checkpoint.pause_round, the same), died (still "running", but its process is gone) or
    unreadable. manifest, last and last_eval are empty where nothing could be read; problem says why
    not.
    """

    name: str
    folder: Path
    state: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    last_eval: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def list_runs(root: Path) -> list[RunSummary]:
    """Every run in root or in a folder below it, by name; hidden folders are left out."""
    found: list[RunSummary] = []
    for path, folders, files in os.walk(root):
        if MANIFEST in files:
            folder = Path(path)
            found.append(summary(folder, str(folder.relative_to(root))))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found, key=lambda run: run.name)


def state_in(manifest: Mapping[str, Any]) -> str:
    """The state that a manifest tells; died, if the process that it says is running is gone."""
    state: str = manifest["state"]
    return "died" if state == "running" and not is_alive(manifest) else state


def kernels_in(manifest: Mapping[str, Any]) -> str:
    """The kernels that a run was last started with, in a few words; "" if they are unknown."""
    host = manifest.get("host")
    return label(host.get("kernels") or {}) if isinstance(host, Mapping) else ""


def last_start(manifest: Mapping[str, Any]) -> str:
    """When a run was last started or gone on with."""
    return str([manifest["started"], *(again["at"] for again in manifest.get("resumed", []))][-1])


def summary(folder: Path, name: str) -> RunSummary:
    """A run as its files tell it; never raises on damaged ones."""
    try:
        manifest = read_manifest(folder / MANIFEST)
    except Unreadable as error:
        return RunSummary(name, folder, "unreadable", problem=f"{MANIFEST} is damaged: {error}")
    state = state_in(manifest)
    try:
        rounds, judged = metrics(folder), evals(folder)
    except Unreadable as error:
        return RunSummary(name, folder, state, manifest, problem=str(error))
    cut = " and ".join(n for n, rows in ((METRICS, rounds), (EVALS, judged)) if rows.is_cut)
    return RunSummary(
        name,
        folder,
        state,
        manifest,
        rounds=len(rounds),
        last=rounds[-1] if rounds else {},
        last_eval=judged[-1] if judged else {},
        problem=f"the last line of {cut} was cut" if cut else "",
    )


def error_of(manifest: Mapping[str, Any]) -> str:
    """The error that a failed run noted down, in one line without its traceback; "" if none."""
    lines = str(manifest.get("error") or "").splitlines()
    # Notes may follow the error, which follows the last line of code.
    last_code = max((place for place, line in enumerate(lines) if line.startswith(" ")), default=-1)
    return next((line.strip() for line in lines[last_code + 1 :] if line.strip()), "")


def config_hash(config: Mapping[str, Any]) -> str:
    """16 hex digits of SHA-256 over the values, whatever the order of the keys and under the names
    that they were first recorded by."""
    text = json.dumps(
        as_first_recorded(config), sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_json(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
