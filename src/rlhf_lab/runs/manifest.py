"""manifest.json: what ran, with what, and how it ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NotRequired, Required, cast

from pydantic import AfterValidator
from typing_extensions import TypedDict

from rlhf_lab.runs.kernels import label
from rlhf_lab.runs.provenance import is_alive
from rlhf_lab.runs.reading import MEBIBYTE, checked, read_json
from rlhf_lab.runs.schema import Amount, Count, Pid, Seed

# With the traceback of a failure it is some hundred KiB.
MANIFEST_BYTES = 16 * MEBIBYTE
DIGEST = "digest"


def is_moment(text: str) -> str:
    """Raises ValueError unless it is a time with its zone, as manifests have it."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"the time {text} has no zone")
    return text


def is_inside(name: str) -> str:
    """Raises ValueError unless it is the path of a file in the run's folder."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        raise ValueError(f"{name} is outside of the folder")
    return name


Moment = Annotated[str, AfterValidator(is_moment)]
FileName = Annotated[str, AfterValidator(is_inside)]


class Git(TypedDict, total=False):
    commit: Required[str | None]
    is_dirty: Required[bool]


class KernelFacts(TypedDict, total=False):
    capability: str
    libraries: list[str]
    flags: list[str]
    environment: dict[str, str]


class Host(TypedDict, total=False):
    name: str
    user: str
    platform: str
    cpu: str
    kernels: KernelFacts
    cores: Count
    memory_bytes: Count


class Process(TypedDict, total=False):
    pid: Pid
    born: str | None
    job: str | None


class Restart(TypedDict):
    """A start after the first."""

    after: str
    at: Moment
    kernels: NotRequired[str]
    precision: NotRequired[str]


class ModeSettings(TypedDict, total=False):
    """at_bound, ahead: earlier names of when_stale and extra_rounds (renames)."""

    max_staleness: Required[Count]
    when_stale: str
    extra_rounds: Count
    at_bound: str
    ahead: Count


class PluginFacts(TypedDict):
    """A module or package outside of this one that a run has parts of. version: None where it is
    not installed. sha256: of its sources. parts: KEY=NAME."""

    module: str
    version: str | None
    sha256: str
    parts: list[str]


class RecordedExtent(TypedDict):
    """What a run wrote into a file. rows: of a file of rows."""

    rows: NotRequired[Count]
    size: Count
    sha256: str


class SavedStates(TypedDict):
    """The checkpoints that a run left: their rounds, and the bytes of each."""

    rounds: list[Count]
    bytes: list[Count]


class ForkFacts(TypedDict):
    """What a fork starts from: folder and run_id of its parent, rounds that they share, what it
    changed, as key -> (parent's, fork's), and the seconds that it took to come to its round."""

    parent: str
    parent_id: str
    round: Count
    changes: dict[str, list[Any]]
    seconds: NotRequired[Amount]


class Manifest(TypedDict, total=False):
    """Contents of manifest.json. generation: what generators reported before their first chunks.
    records: of files that the run wrote, by path in its folder. digest: of all other keys
    (`sealed`)."""

    state: Required[Literal["running", "finished", "failed", "interrupted", "stopped", "paused"]]
    started: Moment
    ended: Moment
    resumed: list[Restart]
    run_id: str
    command: str
    primary_config: list[str] | None
    overrides: list[str]
    working_folder: str
    seed: Seed | None
    task: str
    algo: str
    correction: str
    mode: str
    model: str
    num_rounds: Count | None
    content: str
    changed: list[str]
    log: str | None
    generation: list[str]
    mode_settings: ModeSettings
    settings: dict[str, Any]
    accelerator: str | None
    precision: dict[str, dict[str, Any]]
    plugins: list[PluginFacts]
    versions: dict[str, str | None]
    code: str
    git: Git | None
    host: Host
    process: Process
    weights_digest: str
    records: dict[FileName, RecordedExtent]
    checkpoints: SavedStates
    fork: ForkFacts
    wall_seconds: Amount
    ideal_seconds: Amount
    error: str | None
    digest: str


class HostName(TypedDict):
    name: str


class ProcessId(TypedDict):
    pid: Pid
    born: str | None


class Running(TypedDict):
    """Keys that a manifest in state `running` needs: they show whether its process still lives."""

    host: HostName
    process: ProcessId


class Started(TypedDict):
    """Keys that `rlhf-lab resume` needs."""

    overrides: list[str]


class Replayed(TypedDict):
    """Keys that a replay of a run needs too."""

    mode_settings: ModeSettings


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with the digest of its other values, by which a changed one is found."""
    others = {key: value for key, value in manifest.items() if key != DIGEST}
    return others | {DIGEST: hashlib.sha256(json.dumps(others).encode()).hexdigest()}


def read_manifest(path: Path) -> Manifest:
    """A run's manifest.json. Raises Unreadable."""
    found = read_json(path, dict[str, Any], MANIFEST_BYTES)
    checked(found, Manifest, path)
    if found["state"] == "running":
        checked(found, Running, path)
    return cast(Manifest, found)


def state_in(manifest: Mapping[str, Any]) -> str:
    """The state in a manifest; died, if it is `running` and the process has ended."""
    state: str = manifest["state"]
    return "died" if state == "running" and not is_alive(manifest) else state


def kernels_in(manifest: Mapping[str, Any]) -> str:
    """The kernels that a run was last started with, in a few words; "" if they are unknown."""
    host = manifest.get("host")
    return label(host.get("kernels") or {}) if isinstance(host, Mapping) else ""


def last_start(manifest: Mapping[str, Any]) -> str:
    return str([manifest["started"], *(again["at"] for again in manifest.get("resumed", []))][-1])


def fork_changes(fork: Mapping[str, Any]) -> list[str]:
    """What a fork changed, as KEY=VALUE. fork: of its manifest."""
    return [f"{key}={pair[-1]}" for key, pair in fork["changes"].items() if pair]


def error_of(manifest: Mapping[str, Any]) -> str:
    """The error that a failed run noted down, in one line without its traceback; "" if none."""
    lines = str(manifest.get("error") or "").splitlines()
    # Notes may follow the error, which follows the last line of code.
    last_code = max((place for place, line in enumerate(lines) if line.startswith(" ")), default=-1)
    return next((line.strip() for line in lines[last_code + 1 :] if line.strip()), "")


def precision_in(manifest: Mapping[str, Any]) -> str:
    """Devices and types of numbers that a run was last started with, in a few words; "" if they are
    unknown. Sizes of passes decide no more than the order of sums, and are left out."""
    parts = manifest.get("precision")
    named = parts.items() if isinstance(parts, Mapping) else ()
    return ", ".join(
        f"{name} {part.get('dtype')} on {part.get('device')}{' with tf32' * bool(part.get('tf32'))}"
        for name, part in named
        if part
    )
