"""A run's folder: what is in it, how it is claimed, and how it is read again.

manifest.json   what ran, with what, and how it ended     config.yaml   the resolved config
metrics.jsonl   one row per round                         evals.jsonl   one row per evaluation
weights/        the versions that are kept
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rlhf_lab.provenance import is_alive, provenance
from rlhf_lab.rows import Rows, read_rows
from rlhf_lab.types import UserError

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
EVALS = "evals.jsonl"
End = Literal["finished", "failed", "interrupted"]


class RunDirectory:
    """The folder of a run that is going on, owned by this process until `finish`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self._manifest = manifest

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any], config_yaml: str) -> RunDirectory:
        """Claim a new or empty folder and write down what is about to run.

        Raises UserError if the folder holds anything. Of several processes that ask for the same
        folder, exactly one gets it.
        """
        make_folder(folder)
        held = os.listdir(folder)
        if MANIFEST in held:
            raise already_a_run(folder)
        if held:
            raise UserError(
                f"output.dir={folder} is not empty and not a run (it holds {sorted(held)[0]}): "
                "choose a new folder, or leave output.dir empty"
            )
        whole = {"state": "running", "started": now()} | dict(manifest) | provenance()
        try:
            with (folder / MANIFEST).open("x", encoding="utf-8") as file:
                file.write(as_json(whole))
        except FileExistsError as error:
            raise already_a_run(folder) from error
        (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")
        return cls(folder, whole)

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
        self._manifest |= {"state": state, "ended": now()} | facts
        descriptor, draft = tempfile.mkstemp(prefix=".manifest-", dir=self.folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(as_json(self._manifest))
        os.chmod(draft, (self.folder / MANIFEST).stat().st_mode)
        os.replace(draft, self.folder / MANIFEST)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output.dir={folder} cannot be made ({error.strerror}): choose another folder"
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

    state: running, finished, failed, interrupted, died (still "running", but its process is gone)
    or unreadable. manifest, last and last_eval are empty where nothing could be read; problem says
    why not.
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


def summary(folder: Path, name: str) -> RunSummary:
    """A run as its files tell it; never raises on damaged ones."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        state = manifest["state"]
        if state == "running" and not is_alive(manifest):
            state = "died"
    except (OSError, ValueError, LookupError, TypeError):
        return RunSummary(name, folder, "unreadable", problem=f"{MANIFEST} is damaged")
    try:
        rounds, judged = metrics(folder), evals(folder)
    except (OSError, UserError) as error:
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


def config_hash(config: Mapping[str, Any]) -> str:
    """16 hex digits of SHA-256 over the values, whatever the order of the keys."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
