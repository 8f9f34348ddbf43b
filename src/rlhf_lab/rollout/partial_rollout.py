"""Partial rollouts (arXiv:2501.12599, section 2.6.2): each version writes one segment.

A chunk that is admitted at version v0 gets segment j from version v0 + j, at most `segment_steps`
tokens per sample, or turns of an episode; the version of the chunk's own round writes the rest. The
version of a token is thus a function of its position, or of its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from rlhf_lab.types.data import Weights
from rlhf_lab.types.rollouts import Chunk, GeneratorReport, Rollout

Submit = Callable[[Weights, Chunk], Future[Rollout]]


class PartialRollout:
    """Submits the next segment of a chunk as soon as its version is published and the segment
    before is finished, in whichever thread that happens. `future`: the whole rollout."""

    def __init__(self, chunk: Chunk, first: int, segment_steps: int, submit: Submit) -> None:
        self._chunk = chunk
        self._first = first
        self._segment_steps = segment_steps
        self._submit = submit
        self._lock = threading.Lock()
        self._ready: dict[int, Weights] = {}
        self._parts: list[Rollout] = []
        self._is_running = False
        self.future: Future[Rollout] = Future()

    def publish(self, weights: Weights) -> None:
        """Offer a version. Versions come in order; the same one may come twice."""
        with self._lock:
            if weights.version >= self._first + len(self._parts) + self._is_running:
                self._ready[weights.version] = weights
        self._advance()

    def _advance(self) -> None:
        with self._lock:
            version = self._first + len(self._parts)
            if self.future.done() or self._is_running or version not in self._ready:
                return
            self._is_running = True
            weights = self._ready.pop(version)
            chunk = self._next(version)
        # Without the lock: an inline executor has finished the segment when this returns.
        self._submit(weights, chunk).add_done_callback(self._finish)

    def _next(self, version: int) -> Chunk:
        is_last = version == self._chunk.round
        return replace(
            self._chunk,
            stop_at=0 if is_last else self._segment_steps * (len(self._parts) + 1),
            begun=self._parts[-1].samples if self._parts else (),
        )

    def _finish(self, done: Future[Rollout]) -> None:
        # Errors in a callback of a future would be lost.
        try:
            part = done.result()
            with self._lock:
                self._parts.append(part)
                self._is_running = False
            if part.is_finished:
                self.future.set_result(join_segments(self._chunk, self._parts))
            else:
                self._advance()
        except BaseException as error:
            self.future.set_exception(error)


def join_segments(chunk: Chunk, parts: list[Rollout]) -> Rollout:
    """The rollout of a chunk from its segments: the groups of the last, tokens and time of all."""
    tokens: dict[str, int] = {}
    for part in parts:
        for name, amount in part.tokens.items():
            tokens[name] = tokens.get(name, 0) + amount
    return Rollout(
        chunk=chunk,
        groups=parts[-1].groups,
        segments=tuple(segment for part in parts for segment in part.segments),
        tokens=tokens,
        spans=tuple(
            replace(span, worker=part.worker, version=part.version)
            for part in parts
            for span in part.spans
        ),
        worker=parts[-1].worker,
        report=GeneratorReport(
            {name: value for part in parts for name, value in part.report.measures.items()},
            tuple(note for part in parts for note in part.report.notes),
        ),
    )


def segments_of(round_: int, first: int, segment_steps: int, count: int) -> list[tuple[int, int]]:
    """The (step, version) pairs that a chunk of `count` segments must have."""
    versions = range(first, round_ + 1)
    return [(segment_steps * j, version) for j, version in enumerate(versions)][:count]
