"""Read runs from the files that wandb writes offline, whose records its own package parses.

A file is `:W&B`, the number 0xBEE1 and the version 0, then blocks of 32768 bytes, the head being
part of the first. A block holds chunks: CRC-32 of type and data (u32), length (u16), type (u8),
data, all little-endian; the rest of it is zeros. A record is a chunk of type 1, or of 2, 3 ..., 4.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, content, parse_json, parsing
from rlhf_lab.runs.walk import find
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import GLOBAL_STEP
from rlhf_lab_analysis.sources.damage import damage_finding
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import STEP, split_history, wandb_facts
from rlhf_lab_analysis.sources.record import Reading, Record, Source, flat

END = ".wandb"
HEAD, CHUNK = struct.Struct("<4sHB"), struct.Struct("<IHB")
MAGIC = (b":W&B", 0xBEE1, 0)
BLOCK = 32768
FULL, LAST = 1, 4
MOST_BYTES = 2**35


@dataclass
class Session:
    """What a file holds: its run, the config, the rows of history, the exit code, the damage."""

    path: Path
    head: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    problems: list[str] = field(default_factory=list)


def read_offline(root: Path) -> Reading:
    """Every run of a `.wandb` file, or of those in a folder or below it. Files of one id are
    sessions of one run, in the order of their paths, which begin with a time."""
    unread: list[Unreadable] = []
    runs: dict[str, list[Session]] = {}
    for path in find(root, lambda path: path.suffix == END, unread):
        try:
            session = read_session(path)
        except Unreadable as error:
            unread.append(error)
            continue
        runs.setdefault(session.head.run_id, []).append(session)
    return Reading(tuple(map(record_of, runs.values())), tuple(map(damage_finding, unread)))


def read_session(path: Path) -> Session:
    """One file, as far as it can be trusted. Raises Unreadable if it names no run, and UserError if
    wandb is not installed."""
    try:
        from wandb.proto.wandb_internal_pb2 import Record as Message
    except ImportError as error:
        raise UserError(
            f"{path} is wandb's: reading it needs the package wandb (pip install 'rlhf-lab[wandb]')"
        ) from error
    session = Session(path)
    for number, payload in enumerate(payloads(content(path, MOST_BYTES), session.problems), 1):
        place = f"record {number}"
        with parsing(path, "record of wandb's", place):
            message = Message.FromString(payload)
        kind = message.WhichOneof("record_type")
        if kind == "run":
            session.head = message.run
        if kind in ("run", "config"):
            config = message.run.config if kind == "run" else message.config
            found = values(config.update, path, place)
            session.config |= {name: one for name, one in found.items() if name[:1] != "_"}
        elif kind == "history":
            session.rows.append(values(message.history.item, path, place))
        elif kind == "exit":
            session.exit_code = message.exit.exit_code
    if session.head is None:
        raise Unreadable(path, *(session.problems[:1] or ["it names no run"]))
    return session


def payloads(data: bytes, problems: list[str]) -> Iterator[bytes]:
    """The records of a file, up to the first byte that cannot be trusted, which is a problem."""
    if data[: HEAD.size] != HEAD.pack(*MAGIC):
        problems.append("it does not begin as wandb's files do")
        return
    offset, parts = HEAD.size, list[bytes]()
    while offset < len(data):
        left = BLOCK - offset % BLOCK
        if left < CHUNK.size:
            offset += left
            continue
        start = offset + CHUNK.size
        checksum, length, kind = CHUNK.unpack(data[offset:start].ljust(CHUNK.size, b"\0"))
        part = data[start : start + length]
        is_whole = len(part) == length and start + length <= offset + left
        if not is_whole or zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum:
            problems.append(f"read up to byte {offset} of {len(data)}: it is cut off or damaged")
            return
        parts.append(part)
        offset = start + length
        if kind in (FULL, LAST):
            yield b"".join(parts)
            parts = []


def values(items: Any, path: Path, place: str) -> dict[str, Any]:
    """Keys and their values; `nested_key` is a path, of one part for a plain key."""
    found: dict[str, Any] = {}
    for item in items:
        name = ".".join(item.nested_key) or item.key
        found[name] = parse_json(item.value_json, Any, path, f"{place}, {name[:60]}")
    return found


def record_of(sessions: Sequence[Session]) -> Record:
    """The run of one file or of several."""
    last, head = sessions[-1], sessions[-1].head
    config: dict[str, Any] = {}
    for session in sessions:
        config |= session.config
    history, lost = merged([session.rows for session in sessions])
    rounds, evals = split_history(history)
    state = "died" if last.exit_code is None else "failed" if last.exit_code else "finished"
    known = wandb_facts(
        config,
        rounds or evals,
        state=state,
        name=head.display_name,
        project="/".join(filter(None, (head.entity, head.project))),
        job_type=head.job_type or "train",
        tags=tuple(head.tags),
        commit=head.git.commit[:8],
    )
    found = [
        Finding(Kind.damaged, head.run_id, str(session.path), what)
        for session in sessions
        for what in session.problems
    ]
    if lost:
        what = f"{lost} rows of earlier sessions are left out: a later one has their steps"
        found.append(Finding(Kind.duplicate, head.run_id, str(last.path), what))
    place = str(last.path)
    return Record(Source.offline, head.run_id, place, known, config, rounds, evals, tuple(found))


def merged(sessions: Sequence[Sequence[dict[str, Any]]]) -> tuple[list[dict[str, Any]], int]:
    """The union of the rows of all sessions by their step, and how many rows are not in it: of a
    step that several sessions have, the last one's count. Steps are the tool's own where all rows
    have one, since offline wandb counts its own from 0 in each session."""
    rows = [[flat(row) for row in session] for session in sessions]
    has_own = all(isinstance(row.get(GLOBAL_STEP), int) for session in rows for row in session)
    name = GLOBAL_STEP if has_own else STEP
    kept: list[dict[str, Any]] = []
    for session in rows:
        later = {row.get(name) for row in session}
        kept = [row for row in kept if row.get(name) not in later] + session
    if has_own and len(sessions) > 1:
        kept = [{**row, STEP: row[name]} for row in kept]
    return kept, sum(map(len, rows)) - len(kept)
