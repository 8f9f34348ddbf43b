"""Chunks of a checkpoint's queue as rows of JSON. The keys are a file format: they never change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.types.rollouts import Chunk, GeneratorReport, Rollout, Span
from rlhf_lab.types.samples import Finish, Group, Sample, Steps


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
            "groups": [
                {
                    "rewards": group.rewards,
                    "step_rewards": group.step_rewards,
                    "samples": [asdict(s) for s in group.samples],
                }
                for group in queued.rollout.groups
            ],
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
                Group(
                    prompt,
                    tuple(samples(group["samples"])),
                    tuple(group["rewards"]),
                    tuple(map(steps, group.get("step_rewards", ()))),
                )
                for prompt, group in zip(whole.prompts, saved["groups"], strict=True)
            ),
            segments=tuple((step, version) for step, version in saved["segments"]),
            tokens=saved["tokens"],
            spans=tuple(shifted(Span(**span), perf_counter()) for span in saved["spans"]),
            worker=saved["worker"],
            report=generator_report(saved.get("told", {})),
        )
    return QueuedChunk(row["number"], row["version"], row["is_refunded"], rollout)


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
        )
