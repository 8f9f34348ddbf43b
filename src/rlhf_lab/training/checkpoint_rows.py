"""The queue of a checkpoint as rows of JSON. The keys are a file format: they never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

from rlhf_lab.rollout.chunk_states import Queued, QueuedChunk
from rlhf_lab.rollout.open_groups import OpenGroup
from rlhf_lab.training.replay import StoredGroup
from rlhf_lab.types.rollouts import Chunk, GeneratorReport, Rollout, Span
from rlhf_lab.types.samples import Episode, Finish, Group, Prompt, Sample, Steps


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
            report=generator_report(saved.get("told", {})),
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
        tuple(samples(row["samples"])),
        tuple(row["rewards"]),
        tuple(map(steps, row.get("step_rewards", ()))),
    )


def generator_report(row: Mapping[str, Any]) -> GeneratorReport:
    """The generator's report of a row; empty in checkpoints from before there were reports."""
    return GeneratorReport(row.get("measures", {}), tuple(row.get("notes", ())))


def shifted(span: Span, seconds: float) -> Span:
    """Spans are stored relative to now, because the clocks of two processes differ."""
    return replace(span, start=span.start + seconds, end=span.end + seconds)


def steps(rows: Sequence[Sequence[Any]]) -> Steps:
    """The step rewards of one sample."""
    return tuple((int(token), float(reward)) for token, reward in rows)


def samples(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sample]:
    """The samples of one group."""
    for row in rows:
        yield Sample(
            tokens=tuple(row["tokens"]),
            logps=tuple(row["logps"]),
            version=row["version"],
            finish=Finish(row["finish"]),
            text=row["text"],
            versions=tuple(row["versions"]),
            episode=episode(row["episode"]) if row.get("episode") else None,
        )


def episode(row: Mapping[str, Any]) -> Episode:
    """The episode of a sample; checkpoints from before there were episodes have none."""
    return Episode(
        observed=tuple((place, tuple(tokens)) for place, tokens in row["observed"]),
        turns=steps(row["turns"]),
        transcript=tuple((writer, text) for writer, text in row["transcript"]),
        info=row["info"],
        is_done=row["is_done"],
        read_tokens=row["read_tokens"],
        waits=tuple(row.get("waits", ())),
        is_late=row.get("is_late", False),
    )
