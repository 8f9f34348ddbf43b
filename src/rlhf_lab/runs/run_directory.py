"""How a process claims and locks a run's folder, resumes the run in it, and records its end."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import yaml

from rlhf_lab.runs.disk import DRAFT, OLD_DRAFTS, atomic_write, refusing, remove_drafts
from rlhf_lab.runs.folder import CONFIG, MANIFEST, make_folder, now
from rlhf_lab.runs.identity import NOT_RESUMED, Settings, flat, listed, recorded_settings
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.manifest import kernels_in, precision_in, read_manifest, sealed, state_in
from rlhf_lab.runs.output import lost
from rlhf_lab.runs.provenance import process, provenance
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import Extent, extent_of
from rlhf_lab.types.errors import UserError

LOCK = ".lock"
# A network file system frees the lock of a dead machine only after its lease.
LEASE_SECONDS = 180.0
POLL_SECONDS = 1.0
OWNER_BYTES = 4096
End = Literal["finished", "failed", "interrupted", "stopped", "paused"]


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which is created if need be, while the block runs.

    The kernel frees it when this process ends, however it ends. Raises UserError at once, naming
    the owner, if another process has it. Only a Slurm job that was requeued waits, for the lock
    that it had on the machine before.
    """
    with ExitStack() as stack:
        with refusing(f"output.dir={folder}"):
            take(stack, folder)
        yield


def take(stack: ExitStack, folder: Path) -> None:
    """Lock the folder until the stack is closed, and record the owner in the file of the lock."""
    path = folder / LOCK
    deadline = time.monotonic() + LEASE_SECONDS
    while not stack.enter_context(try_lock(path)):
        owner = owner_of(path)
        job = os.environ.get("SLURM_JOB_ID")
        if job is None or owner.get("job") != job or time.monotonic() > deadline:
            raise UserError(
                f"output.dir={folder} is in use by process {owner.get('pid', '?')} on "
                f"{owner.get('host', '?')}: wait for it, stop it first, or choose another folder"
            )
        time.sleep(POLL_SECONDS)
    path.write_text(json.dumps({**process(), "host": socket.gethostname()}), encoding="utf-8")


def owner_of(path: Path) -> dict[str, Any]:
    """The owner as recorded in the file; empty if it is not recorded yet."""
    try:
        return read_json(path, dict[str, Any], OWNER_BYTES)
    except Unreadable:
        return {}


class RunDirectory:
    """The folder of a run in progress, which this process alone writes to until `finish`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self._manifest = manifest

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any], config_yaml: str) -> RunDirectory:
        """Claim a new or empty folder, and write the config and the manifest.

        The manifest appears last, so that a folder with a manifest has a config; a process that was
        killed before that has started no run. The caller has the folder's lock. Raises UserError if
        the folder has other contents.
        """
        make_folder(folder)
        require_empty(folder, config_yaml)
        start = {"state": "running", "started": now(), "run_id": uuid4().hex[:12]}
        whole = start | dict(manifest) | provenance(manifest.get("plugins", ()))
        try:
            atomic_write(folder / CONFIG, config_yaml)
            whole["records"] = {CONFIG: recorded(CONFIG, extent_of(folder / CONFIG))}
            atomic_write(folder / MANIFEST, as_json(whole))
        except OSError as error:
            raise UserError(
                f"output.dir={folder} cannot be written to ({error.strerror}): choose another"
            ) from error
        return cls(folder, whole)

    @classmethod
    def resume(cls, folder: Path, manifest: Mapping[str, Any], config_yaml: str) -> RunDirectory:
        """Take over the folder of a run that ended early; a new or empty folder is claimed.

        Raises UserError if the run is still running, or was started with other settings.
        """
        make_folder(folder)
        remove_drafts(folder)
        if MANIFEST not in os.listdir(folder):
            return cls.create(folder, manifest, config_yaml)
        before = resumable(folder)
        check_same(folder, before, manifest, config_yaml)
        whole = dict(before)
        if whole["state"] != "finished":
            computed = {"kernels": kernels_in(whole), "precision": precision_in(whole)}
            restart = {"after": state_in(before), "at": now(), **computed}
            restarts = [*whole.get("resumed", []), restart]
            plugins = manifest.get("plugins", [])
            whole |= {"state": "running", "resumed": restarts, "plugins": plugins}
            # `auto` may choose another device than before.
            whole |= {"precision": manifest.get("precision", {})}
            whole |= provenance(plugins)
        record = cls(folder, whole)
        record.update()
        return record

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self._manifest

    def finish(self, state: End, **facts: Any) -> None:
        """Record how and when the run ended, in one step, and whether it printed to its end; facts
        may hold `error`."""
        silent = {"output_lost": lost()} if lost() else {}
        self.update(state=state, ended=now(), **silent, **facts)

    def update(self, **facts: Any) -> None:
        self._manifest |= facts
        atomic_write(self.folder / MANIFEST, as_json(self._manifest))

    def note_files(self, files: Mapping[str, Extent]) -> None:
        """Have the next update record what was written into files, by paths in the folder."""
        found = {name: recorded(name, extent) for name, extent in files.items()}
        self._manifest["records"] = {**self._manifest.get("records", {}), **found}

    def record_files(self, paths: Iterable[Path]) -> None:
        """Record files that were just written whole."""
        self.note_files({str(one.relative_to(self.folder)): extent_of(one) for one in paths})
        self.update()

    def forget_files(self, *names: str) -> None:
        """Remove the records of files that are to be written again."""
        records = self._manifest.get("records", {})
        if not records.keys().isdisjoint(names):
            self.update(records={key: one for key, one in records.items() if key not in names})

    @contextmanager
    def rewriting(self, *names: str) -> Iterator[None]:
        """Files that the block writes, each in one step: a process that is killed meanwhile leaves
        them without a record, and none that is wrong."""
        self.forget_files(*names)
        yield
        self.record_files(path for name in names if (path := self.folder / name).is_file())


def require_empty(folder: Path, config_yaml: str) -> None:
    """Refuse a folder with contents other than those of a process that was killed before its
    manifest appeared: its lock, drafts, and the very config that is to be written."""
    names = {name for name in os.listdir(folder) if not name.startswith((DRAFT, *OLD_DRAFTS))}
    if MANIFEST in names:
        raise already_a_run(folder)
    config = folder / CONFIG
    if config.is_file() and config.read_bytes() == config_yaml.encode():
        names.remove(CONFIG)
    if others := names - {LOCK}:
        raise UserError(
            f"output.dir={folder} is not empty and not a run (it holds {min(others)}): "
            "choose a new folder, or leave output.dir empty"
        )


def resumable(folder: Path) -> Mapping[str, Any]:
    """The manifest of a run that has ended. Raises UserError if it runs, or cannot be read."""
    try:
        manifest: Mapping[str, Any] = read_manifest(folder / MANIFEST)
    except Unreadable as error:
        raise UserError(
            f"output.dir={folder}: {MANIFEST} is damaged: {error}: choose another folder"
        ) from error
    if state_in(manifest) == "running":
        host, pid = manifest["host"]["name"], manifest["process"]["pid"]
        raise UserError(
            f"output.dir={folder} is a run that is still running (process {pid} on {host}): wait "
            "for it, or stop it first; if that machine no longer exists, change its state in "
            f"{MANIFEST} to failed"
        )
    return manifest


def check_same(
    folder: Path, was: Mapping[str, Any], now_: Mapping[str, Any], config_yaml: str
) -> None:
    """Refuse to resume a run with other settings than its own; those of NOT_RESUMED may change."""
    if (folder / CONFIG).is_file() and (folder / CONFIG).read_bytes() == config_yaml.encode():
        return
    try:
        before = recorded_settings(folder, was)
    except Unreadable as error:
        raise UserError(f"output.dir={folder}: {error}: choose another folder") from error
    here = Settings(flat(yaml.safe_load(config_yaml) or {}), now_.get("changed"))
    if differences := before.differences(here, NOT_RESUMED):
        raise UserError(
            f"output.dir={folder} was started with other settings: {listed(differences)}: pass the "
            f"recorded values, as `rlhf-lab resume {folder}` does unless a default is another one "
            "since, or choose another folder"
        )


def already_a_run(folder: Path) -> UserError:
    try:
        state = state_in(read_manifest(folder / MANIFEST))
    except Unreadable:
        state = "unreadable"
    return UserError(
        f"output.dir={folder} already holds a run ({state}): "
        "choose another folder, leave output.dir empty, or move that run away"
    )


def recorded(name: str, extent: Extent) -> dict[str, Any]:
    """What a manifest holds of a file: rows of JSONL files alone."""
    found = asdict(extent)
    if not name.endswith(".jsonl"):
        del found["rows"]
    return found


def as_json(manifest: Mapping[str, Any]) -> str:
    return json.dumps(sealed(manifest), indent=2) + "\n"
