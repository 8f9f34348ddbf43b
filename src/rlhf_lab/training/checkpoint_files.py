"""What one checkpoint holds, and its files: state, queue and weights; see checkpoint.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NotRequired

from torch import Tensor
from typing_extensions import TypedDict

from rlhf_lab.rollout.chunk_states import Queued
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import Extent
from rlhf_lab.runs.saved_tensors import read_version, version_files, write_version
from rlhf_lab.runs.schema import Count
from rlhf_lab.training.checkpoint_optimizer import (
    owned,
    read_optimizer,
)
from rlhf_lab.training.checkpoint_rows import buffer_row, from_queue_row, queue_row, stored_group
from rlhf_lab.training.replay import StoredGroup
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import ShardWriter
from rlhf_lab.types.rollouts import Chunk

STATE = "state.json"
QUEUE = "queue.jsonl"
BUFFER = "replay.jsonl"
NAME = re.compile(r"[0-9]{8,15}")
VERSION = re.compile(r"weights-([0-9]{8,15})")


class State(TypedDict):
    """The content of state.json."""

    round: Count
    counters: dict[str, Any]
    ledger: dict[str, Any]
    records: NotRequired[dict[str, Extent]]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run between two rounds.

    round: rounds done, which is also the number of the latest version. weights: that version, and
    the older ones that wrote samples still to be trained on. writer: writes the optimizer's
    state where processes have shards of it; `optimizer` is empty then.
    """

    round: int
    weights: Mapping[int, Weights]
    optimizer: Mapping[str, Tensor]
    counters: Mapping[str, Any]
    queue: Sequence[Queued]
    ledger: Mapping[str, Any]
    writer: ShardWriter | None = None
    buffer: Sequence[StoredGroup] = ()


def saved_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; files and folders with other names are skipped."""
    paths = folder.glob("[0-9]*")
    return sorted(path for path in paths if NAME.fullmatch(path.name) and path.is_dir())


def state_bytes(folder: Path) -> dict[int, int]:
    """The bytes on disk of each checkpoint in a folder, by round."""
    return {
        int(path.name): sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in saved_checkpoints(folder)
    }


def read(
    folder: Path,
    chunk: Callable[[int], Chunk],
    prepare: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Snapshot:
    """Read a verified checkpoint. chunk(number): the chunk with its prompts. prepare(counters) is
    called before it."""
    state = read_json(folder / STATE, State)
    prepare(state["counters"])
    found = version_files(folder, VERSION)
    weights = {version: read_version(version, path) for version, path in found.items()}
    if state["round"] != int(folder.name) or state["round"] not in weights:
        raise Unreadable(folder, f"it is of round {state['round']}, whose weights it lacks")
    return Snapshot(
        round=state["round"],
        weights={v: replace(one, state=owned(one.state)) for v, one in weights.items()},
        optimizer=read_optimizer(folder),
        counters=state["counters"],
        queue=[from_queue_row(row, chunk) for row in read_rows(folder / QUEUE)],
        ledger=state["ledger"],
        buffer=[stored_group(row, chunk) for row in read_rows(folder / BUFFER)]
        if (folder / BUFFER).exists()
        else (),
    )


def write_weights(versions: Mapping[int, Weights], draft: Path) -> None:
    """Write versions of the policy, which never change."""
    for version, weights in versions.items():
        write_version(weights, draft / f"weights-{version:08d}")


def write_rest(snapshot: Snapshot, records: Mapping[str, Any], draft: Path) -> None:
    """Write all but tensors."""
    state = {
        "round": snapshot.round,
        "counters": snapshot.counters,
        "ledger": snapshot.ledger,
        "records": records,
    }
    (draft / STATE).write_text(json.dumps(state), encoding="utf-8")
    with (draft / QUEUE).open("w", encoding="utf-8") as file:
        for queued in snapshot.queue:
            file.write(json.dumps(queue_row(queued)) + "\n")
    if snapshot.buffer:
        with (draft / BUFFER).open("w", encoding="utf-8") as file:
            for stored in snapshot.buffer:
                file.write(json.dumps(buffer_row(stored)) + "\n")
