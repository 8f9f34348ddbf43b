"""What the files of a run hold, as far as the lab reads them: keys, types and ranges.

Further keys may be there, and older runs lack some: what is there has its type. A reader that
cannot do without a key asks for it by a type of its own.
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, cast

from pydantic import AfterValidator, BeforeValidator, Field
from typing_extensions import TypedDict

from rlhf_lab.runs.reading import MEBIBYTE, checked, read_json


def as_whole(value: Any) -> Any:
    """Whole numbers that were written as 16.0 are such; JSON does not tell them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Whole numbers that float64 has exactly, which columns with gaps hold.
Count = Annotated[int, BeforeValidator(as_whole), Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Pid = Annotated[int, Field(ge=1, lt=2**31)]
Text = Annotated[str, Field(min_length=1)]
# With the traceback of a failure it is some hundred KiB.
MANIFEST_BYTES = 16 * MEBIBYTE


def is_moment(text: str) -> str:
    """Raises ValueError unless it is a time with its zone, as manifests have it."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("the time has no zone")
    return text


Moment = Annotated[str, AfterValidator(is_moment)]


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
    platform: str
    cpu: str
    kernels: KernelFacts
    cores: Count
    memory_bytes: Count


class Process(TypedDict, total=False):
    pid: Pid
    born: str | None
    job: str | None


class Again(TypedDict):
    """A start after the first."""

    after: str
    at: Moment
    kernels: NotRequired[str]


class ModeSettings(TypedDict, total=False):
    """at_bound, ahead: former names of when_stale and extra_rounds (former_names)."""

    max_staleness: Required[Count]
    when_stale: str
    extra_rounds: Count
    at_bound: str
    ahead: Count


class Written(TypedDict):
    """How much of a file of rows a run wrote."""

    rows: Count
    size: Count
    sha256: str


class Manifest(TypedDict, total=False):
    """manifest.json."""

    state: Required[Literal["running", "finished", "failed", "interrupted", "stopped", "paused"]]
    started: Moment
    ended: Moment
    resumed: list[Again]
    run_id: str
    command: str
    primary_config: list[str] | None
    overrides: list[str]
    seed: Seed | None
    task: str
    algo: str
    correction: str
    mode: str
    model: str
    num_rounds: Count | None
    config_hash: str
    content: str
    identity: str
    log: str | None
    mode_settings: ModeSettings
    settings: dict[str, Any]
    accelerator: str | None
    versions: dict[str, str | None]
    code: str
    git: Git | None
    host: Host
    process: Process
    weights_digest: str
    records: dict[str, Written]
    wall_seconds: Amount
    ideal_seconds: Amount
    error: str | None


class Named(TypedDict):
    name: str


class Living(TypedDict):
    pid: Pid
    born: str | None


class Running(TypedDict):
    """What tells whether a run that is running still does."""

    host: Named
    process: Living


class Started(TypedDict):
    """What a run is started again from."""

    overrides: list[str]


class Replayed(TypedDict):
    """What a replay of a run needs besides."""

    mode_settings: ModeSettings


def read_manifest(path: Path) -> Manifest:
    """A run's manifest.json. Raises Unreadable."""
    found = read_json(path, dict[str, Any], MANIFEST_BYTES)
    checked(found, Manifest, path)
    if found["state"] == "running":
        checked(found, Running, path)
    return cast(Manifest, found)


Round = TypedDict(
    "Round",
    {
        "step": Required[Count],
        "reward/mean": float,
        "kl/sampled_reference_k1": float,
        "seconds/wall": Amount,
        "seconds/device": Amount,
        "seconds/wait": Amount,
        "total/rounds": Count,
        "total/updates": Count,
        "total/prompts": Count,
        "total/completions": Count,
        "total/generated_tokens": Count,
        "total/trained_tokens": Count,
        "total/flops": Amount,
    },
    total=False,
)
"""A row of metrics.jsonl."""

Evaluation = TypedDict(
    "Evaluation",
    {
        "version": Required[Count],
        "validate": str,
        "gold/win_rate": float | None,
        "gold/mean": float | None,
        "proxy/mean": float | None,
        "eval/prompts": Count,
        "eval/options": str,
        "eval/split": str,
        "timing/seconds": Amount,
    },
    total=False,
)
"""A row of evals.jsonl, of a labelled one, and of validation.jsonl."""

Segment = Annotated[list[Count], Field(min_length=2, max_length=2)]


class Scheduled(TypedDict, total=False):
    """A row of schedule.jsonl."""

    round: Required[Count]
    chunk: Required[Count]
    segments: Required[Annotated[list[Segment], Field(min_length=1)]]
    dropped: Required[bool]
    segment_tokens: Count


class Timed(TypedDict, total=False):
    """A row of timeline.jsonl."""

    lane: Required[Text]
    phase: Required[Text]
    start: Required[Finite]
    end: Required[Finite]
    round: Required[Count]
    version: Required[Count]
    chunk: Count | None


KINDS: dict[str, Any] = {
    "metrics.jsonl": Round,
    "evals.jsonl": Evaluation,
    "evals-*.jsonl": Evaluation,
    "validation.jsonl": Evaluation,
    "schedule.jsonl": Scheduled,
    "timeline.jsonl": Timed,
}


def kind_of(path: Path) -> Any:
    """The type of a file's rows, by the file's name; None for files that are not of a run."""
    return next((kind for name, kind in KINDS.items() if fnmatchcase(path.name, name)), None)
