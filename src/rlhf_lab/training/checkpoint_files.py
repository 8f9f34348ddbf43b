"""What one checkpoint holds, and its files: state, queue, weights and optimizer; see checkpoint.py.

The keys of rows are a file format: they never change.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NotRequired

from pydantic import TypeAdapter
from torch import Tensor
from typing_extensions import TypedDict

from rlhf_lab.rollout.chunk_states import Queued, QueuedChunk
from rlhf_lab.rollout.open_groups import OpenGroup
from rlhf_lab.runs.disk import save_file
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import Extent
from rlhf_lab.runs.saved_tensors import read_tensors, read_version, version_files, write_version
from rlhf_lab.runs.schema import Count
from rlhf_lab.training.replay import StoredGroup
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import ShardWriter
from rlhf_lab.types.rollouts import Chunk, GeneratorReport, Rollout, Span
from rlhf_lab.types.samples import Group, Prompt, Sample, Steps

OPTIMIZER = "optimizer.safetensors"
# In the place of OPTIMIZER where processes write their shards: those, and what is not sharded.
# Versions that do not know them miss OPTIMIZER, and do not take the checkpoint for a whole one.
SHARDS = "shards"
UNSHARDED = "unsharded.safetensors"
# Rows are made by `asdict`, and these read them again.
SAMPLES = TypeAdapter(tuple[Sample, ...])
STEP_REWARDS = TypeAdapter(tuple[Steps, ...])
REPORT = TypeAdapter(GeneratorReport)


def write_optimizer(
    optimizer: Mapping[str, Tensor], writer: ShardWriter | None, draft: Path
) -> Future[dict[str, str]] | None:
    """Write the state, or let a writer begin to: the digests of its shards once they are there."""
    if writer is not None:
        folder = draft / SHARDS
        folder.mkdir()
        if (begun := writer.write_shards(folder)) is not None:
            whole, digests = begun
            save_file(whole, draft / UNSHARDED)
            return digests
        folder.rmdir()
        warnings.warn(
            f"not every trainer sees {draft.parent}: checkpoints are gathered by the first one, "
            "which takes longer; name a folder that all hosts share by output.dir",
            stacklevel=2,
        )
        optimizer = writer.state()
    save_file(optimizer, draft / OPTIMIZER)
    return None


def optimizer_file(folder: Path) -> str:
    """The file that a checkpoint must have, with shards beside it or without."""
    return UNSHARDED if (folder / SHARDS).is_dir() else OPTIMIZER


def read_optimizer(folder: Path) -> dict[str, Tensor]:
    """The state as whole tensors, whoever wrote it. Raises Unreadable."""
    state = owned(read_tensors(folder / optimizer_file(folder)))
    if (folder / SHARDS).is_dir():
        from rlhf_lab.training.engines.shards import read_shards  # slow to import

        state |= read_shards(folder / SHARDS)
    return state


def owned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in memory of their own: kernels may round differently on a file's unaligned memory."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def queue_row(queued: Queued) -> dict[str, Any]:
    """The row of a chunk, or of a group with what was written of it."""
    if isinstance(queued, QueuedChunk):
        return as_row(queued)
    row = {"number": queued.number, "place": queued.place}
    return row | {"group": group_row(queued.group)}


def from_queue_row(row: Mapping[str, Any], chunk: Callable[[int], Chunk]) -> Queued:
    """What `queue_row` wrote, bit for bit. Steps are those of a round, which begins anew."""
    if "group" not in row:
        return from_row(row, chunk)
    whole = chunk(row["number"])
    group = read_group(whole.prompts[row["place"]], row["group"])
    return OpenGroup(row["number"], row["place"], whole, group)


def as_row(queued: QueuedChunk) -> dict[str, Any]:
    """The row of a queued chunk. Prompts are left out: they follow from the chunk's number."""
    row: dict[str, Any] = {
        "number": queued.number,
        "version": queued.version,
        "is_refunded": queued.is_refunded,
    }
    if queued.rollout is not None:
        row["rollout"] = {
            "segments": queued.rollout.segments,
            "tokens": dict(queued.rollout.tokens),
            "spans": [asdict(shifted(span, -perf_counter())) for span in queued.rollout.spans],
            "worker": queued.rollout.worker,
            "told": asdict(queued.rollout.report),
            "groups": [group_row(group) for group in queued.rollout.groups],
        }
    return row


def from_row(row: Mapping[str, Any], chunk: Callable[[int], Chunk]) -> QueuedChunk:
    """The queued chunk of a row, bit for bit."""
    rollout = None
    if saved := row.get("rollout"):
        whole = chunk(row["number"])
        rollout = Rollout(
            chunk=whole,
            groups=tuple(
                read_group(prompt, group)
                for prompt, group in zip(whole.prompts, saved["groups"], strict=True)
            ),
            segments=tuple((step, version) for step, version in saved["segments"]),
            tokens=saved["tokens"],
            spans=tuple(shifted(Span(**span), perf_counter()) for span in saved["spans"]),
            worker=saved["worker"],
            report=REPORT.validate_python(saved["told"]),
        )
    return QueuedChunk(row["number"], row["version"], row["is_refunded"], rollout)


def buffer_row(stored: StoredGroup) -> dict[str, Any]:
    """The row of a group of an earlier round, without its prompt."""
    own = {"number": stored.number, "place": stored.place, "round": stored.round}
    return own | {"uses": stored.uses, "group": group_row(stored.group)}


def stored_group(row: Mapping[str, Any], chunk: Callable[[int], Chunk]) -> StoredGroup:
    """The group of a row, bit for bit."""
    prompt = chunk(row["number"]).prompts[row["place"]]
    group = read_group(prompt, row["group"])
    return StoredGroup(row["number"], row["place"], row["round"], row["uses"], group)


def group_row(group: Group) -> dict[str, Any]:
    return {
        "rewards": group.rewards,
        "step_rewards": group.step_rewards,
        "samples": [asdict(sample) for sample in group.samples],
    }


def read_group(prompt: Prompt, row: Mapping[str, Any]) -> Group:
    return Group(
        prompt,
        SAMPLES.validate_python(row["samples"]),
        tuple(row["rewards"]),
        STEP_REWARDS.validate_python(row.get("step_rewards", ())),
    )


def shifted(span: Span, seconds: float) -> Span:
    """Spans are stored relative to now, because the clocks of two processes differ."""
    return replace(span, start=span.start + seconds, end=span.end + seconds)


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


def along_schedule(snapshot: Snapshot, chunks_per_round: int) -> Snapshot:
    """The state of a replay at the round of a run whose timing decided which version wrote what.

    A replay admits the chunks of one round at a time; those of later rounds are generated again
    when they are due, by the versions that the schedule has.
    """
    budget: Mapping[str, Any] = snapshot.counters["budget"]
    chunks = [one for one in snapshot.queue if isinstance(one, QueuedChunk)]
    first = chunks[0].number
    drops = first - snapshot.round * chunks_per_round
    seen = first + chunks_per_round
    replayed = dict(budget) | {"seen": seen, "refunds": drops, "held": []}
    queue = [replace(one, is_refunded=False) for one in chunks if one.number < seen]
    return replace(snapshot, counters={**snapshot.counters, "budget": replayed}, queue=queue)


def forked(snapshot: Snapshot, keeps_coefficient: bool) -> Snapshot:
    """The state at which a fork's own settings begin.

    Chunks on their way keep the versions that wrote them; all others are written by the version of
    the fork's round or by later ones. keeps_coefficient: whether a KL coefficient that adapts goes
    on, rather than beginning anew.
    """
    budget: Mapping[str, Any] = snapshot.counters.get("budget", {})
    if budget.get("first") == snapshot.round:
        return snapshot
    counters = dict(snapshot.counters)
    if budget:
        # Groups that move from round to round, which have no budget, know their versions.
        inherited = [
            [one.number, one.rollout.version if one.rollout is not None else one.version]
            for one in snapshot.queue
            if isinstance(one, QueuedChunk)
        ]
        counters["budget"] = dict(budget) | {"first": snapshot.round, "inherited": inherited}
    if not keeps_coefficient:
        counters.pop("kl_coef", None)
    return replace(snapshot, counters=counters)
