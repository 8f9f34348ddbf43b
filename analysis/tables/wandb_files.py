"""Runs from wandb's offline files, read without wandb's service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.tables.findings import Finding, Kind
from analysis.tables.history import facts, join, split
from analysis.tables.record import Reading, Record, Source
from analysis.tables.wandb_log import Log
from rlhf_lab.types import UserError

PATTERN = "*.wandb"


@dataclass
class Told:
    """What one file tells: of its run, its rows of history, and where reading it stopped."""

    path: Path
    head: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    problem: str = ""


def read_offline(root: Path) -> Reading:
    """Every run of a `.wandb` file, or of those in a folder or below it. Files of one id are parts
    of one run, which was resumed."""
    paths = [root] if root.is_file() else sorted(root.rglob(PATTERN))
    told = [tell(path) for path in paths]
    runs: dict[str, list[Told]] = {}
    for one in told:
        if one.head is not None:
            runs.setdefault(one.head.run_id, []).append(one)
    nameless = [
        Finding(Kind.damaged, "", str(one.path), one.problem or "it names no run: nothing was read")
        for one in told
        if one.head is None
    ]
    return Reading(tuple(record_of(parts) for parts in runs.values()), tuple(nameless))


def tell(path: Path) -> Told:
    """Read a file as far as it can be trusted. Raises UserError if wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record as Message
    except ImportError as error:
        raise UserError(
            f"{path} is wandb's: reading it needs the package wandb (pip install 'rlhf-lab[wandb]')"
        ) from error
    told = Told(path)
    data = path.read_bytes()
    log = Log(data)
    for payload in log:
        take(Message.FromString(payload), told)
    if log.stop is not None:
        told.problem = (
            f"read up to byte {log.stop.offset} of {len(data)} of {path.name} ({log.stop.why}): "
            f"{len(told.rows)} rows of history before it"
        )
    return told


def take(message: Any, told: Told) -> None:
    """Take over what a record says; most kinds say nothing of interest here."""
    kind = message.WhichOneof("record_type")
    if kind == "run":
        # A later one of the same file repeats the run, with what has changed.
        told.head = message.run
        told.config |= updates(message.run.config)
    elif kind == "config":
        told.config |= updates(message.config)
    elif kind == "history":
        told.rows.append(values(message.history.item))
    elif kind == "exit":
        told.exit_code = message.exit.exit_code


def updates(config: Any) -> dict[str, Any]:
    """A config's values without wandb's own. What lies within a value comes by its path."""
    return {
        name: value for name, value in values(config.update).items() if not name.startswith("_")
    }


def values(items: Any) -> dict[str, Any]:
    """Keys and their values; `nested_key` is a path, of one part for a plain key."""
    found: dict[str, Any] = {}
    for item in items:
        path = list(item.nested_key) or [item.key]
        node = found
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = json.loads(item.value_json)
    return found


def record_of(parts: Sequence[Told]) -> Record:
    """The run of one or several files. Their folders are named by time, so paths are in order."""
    last = parts[-1]
    config: dict[str, Any] = {}
    for part in parts:
        config |= part.config
    rounds, evals = split(join([part.rows for part in parts]))
    head, place = last.head, str(last.path)
    known = facts(
        config,
        rounds or evals,
        state=state_of(last),
        name=head.display_name,
        project="/".join(filter(None, (head.entity, head.project))),
        user=head.username if hasattr(head, "username") else "",
        job_type=head.job_type or "train",
        tags=tuple(head.tags),
        commit=head.git.commit[:8],
        started=started(head),
    )
    findings = tuple(
        Finding(Kind.damaged, head.run_id, str(part.path), part.problem)
        for part in parts
        if part.problem
    )
    return Record(Source.offline, head.run_id, place, known, config, rounds, evals, findings)


def started(head: Any) -> str:
    """When a run began, in UTC; "" if its file does not say."""
    seconds = head.start_time.seconds
    if not seconds:
        return ""
    return str(head.start_time.ToDatetime().isoformat(timespec="seconds") + "+00:00")


def state_of(told: Told) -> str:
    """How the process ended that wrote a file: without a last word it is taken to have died."""
    if told.exit_code is None:
        return "died"
    return "finished" if told.exit_code == 0 else "failed"
