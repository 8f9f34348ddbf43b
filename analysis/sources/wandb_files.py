"""Read runs from wandb's offline files, without wandb's service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, content, parse_json, parsing
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.damage import damage_finding
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import merge_histories, split_history, wandb_facts
from rlhf_lab_analysis.sources.record import Reading, Record, Source
from rlhf_lab_analysis.sources.wandb_log import Log

PATTERN = "*.wandb"
WANDB_BYTES = 2**35
# Parts of a key: far above what a config has. And how many of them a message shows.
DEPTH, SHOWN = 64, 8


@dataclass
class ParsedFile:
    """The content of one file: its run, its rows of history, and the problems in reading it."""

    path: Path
    head: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    problems: list[str] = field(default_factory=list)


def read_offline(root: Path) -> Reading:
    """Every run of a `.wandb` file, or of those in a folder or below it. Files of one id are parts
    of one run, which was resumed."""
    paths = [root] if root.is_file() else sorted(root.rglob(PATTERN))
    parsed, findings = [], list[Finding]()
    for path in paths:
        try:
            parsed.append(read_file(path))
        except Unreadable as error:
            findings.append(damage_finding(error))
    runs: dict[str, list[ParsedFile]] = {}
    for one in parsed:
        if one.head is not None:
            runs.setdefault(one.head.run_id, []).append(one)
    for one in parsed:
        problems = one.problems or ["it names no run: nothing was read"]
        if one.head is None:
            findings += [Finding(Kind.damaged, "", str(one.path), what) for what in problems]
    return Reading(tuple(record_of(parts) for parts in runs.values()), tuple(findings))


def read_file(path: Path) -> ParsedFile:
    """Read a file as far as it can be trusted. Raises UserError if wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record as Message
    except ImportError as error:
        raise UserError(
            f"{path} is wandb's: reading it needs the package wandb (pip install 'rlhf-lab[wandb]')"
        ) from error
    parsed = ParsedFile(path)
    data = content(path, WANDB_BYTES)
    log = Log(data)
    for number, payload in enumerate(log, start=1):
        place = f"record {number}"
        try:
            with parsing(path, "record of wandb's", place):
                message = Message.FromString(payload)
            add_record(message, parsed, place)
        except Unreadable as error:
            parsed.problems.append(f"{path.name}, {place}, is left out: {error.reason}")
    if log.stop is not None:
        parsed.problems.append(
            f"read up to byte {log.stop.offset} of {len(data)} of {path.name} ({log.stop.why}): "
            f"{len(parsed.rows)} rows of history before it"
        )
    return parsed


def add_record(message: Any, parsed: ParsedFile, place: str) -> None:
    """Add a record to the file's content; most kinds of records are not used. Raises Unreadable."""
    path = parsed.path
    kind = message.WhichOneof("record_type")
    if kind == "run":
        # A later one of the same file repeats the run, with what has changed.
        parsed.head = message.run
        parsed.config |= config_values(message.run.config, path, place)
    elif kind == "config":
        parsed.config |= config_values(message.config, path, place)
    elif kind == "history":
        parsed.rows.append(nested_values(message.history.item, path, place))
    elif kind == "exit":
        parsed.exit_code = message.exit.exit_code


def config_values(config: Any, path: Path, place: str) -> dict[str, Any]:
    """A config's values without wandb's own. Nested values keep their nesting."""
    found = nested_values(config.update, path, place)
    return {name: value for name, value in found.items() if not name.startswith("_")}


def nested_values(items: Any, file: Path, place: str) -> dict[str, Any]:
    """Keys and their values; `nested_key` is a path, of one part for a plain key."""
    found: dict[str, Any] = {}
    for item in items:
        path = list(item.nested_key) or [item.key]
        name = f"{place}, {'.'.join(path[:SHOWN])}"
        value = parse_json(item.value_json, Any, file, name)
        if len(path) > DEPTH:
            raise Unreadable(file, f"a key of {len(path)} parts", name)
        node = found
        for part in path[:-1]:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                raise Unreadable(file, f"{part} is both a value and a group of them", name)
            node = inner
        node[path[-1]] = value
    return found


def record_of(parts: Sequence[ParsedFile]) -> Record:
    """The run of one or several files. Their folders are named by time, so paths are in order."""
    last = parts[-1]
    config: dict[str, Any] = {}
    for part in parts:
        config |= part.config
    rounds, evals = split_history(merge_histories([part.rows for part in parts]))
    head, place = last.head, str(last.path)
    known = wandb_facts(
        config,
        rounds or evals,
        state=state_of(last),
        name=head.display_name,
        project="/".join(filter(None, (head.entity, head.project))),
        user=head.username if hasattr(head, "username") else "",
        job_type=head.job_type or "train",
        tags=tuple(head.tags),
        commit=head.git.commit[:8],
        started=start_time(head, last.problems),
    )
    findings = tuple(
        Finding(Kind.damaged, head.run_id, str(part.path), problem)
        for part in parts
        for problem in part.problems
    )
    return Record(Source.offline, head.run_id, place, known, config, rounds, evals, findings)


def start_time(head: Any, problems: list[str]) -> str:
    """When a run began, in UTC; "" if its file has no start time, or an impossible one."""
    seconds = head.start_time.seconds
    if not seconds:
        return ""
    try:
        began = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        problems.append(f"its start, {seconds} seconds after 1970, is no time")
        return ""
    return began.isoformat(timespec="seconds")


def state_of(parsed: ParsedFile) -> str:
    """How the process ended that wrote a file: without an exit record, it is taken as died."""
    if parsed.exit_code is None:
        return "died"
    return "finished" if parsed.exit_code == 0 else "failed"
