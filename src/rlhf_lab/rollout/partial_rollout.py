"""Partial rollouts (arXiv:2501.12599, section 2.6.2): a chunk written by one version after another.

Version v0 + j writes segment j, at most `segment_tokens` tokens a row, and the version of the
chunk's own round writes whatever is left. So the version of a token is a function of its position.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from rlhf_lab.types.data import Chunk, GeneratorReport, Rollout, Weights

Submit = Callable[[Weights, Chunk], Future[Rollout]]


class PartialRollout:
    """Hands a chunk over again whenever its next version is there and its last segment is done,
    whichever comes last and whichever thread brings it. `future` is the whole rollout's."""

    def __init__(self, chunk: Chunk, first: int, segment_tokens: int, submit: Submit) -> None:
        self._chunk = chunk
        self._first = first
        self._segment_tokens = segment_tokens
        self._submit = submit
        self._lock = threading.Lock()
        self._ready: dict[int, Weights] = {}
        self._parts: list[Rollout] = []
        self._is_at_work = False
        self.future: Future[Rollout] = Future()

    def publish(self, weights: Weights) -> None:
        """These weights are there now. Versions come in order; one may come again."""
        with self._lock:
            if weights.version >= self._first + len(self._parts) + self._is_at_work:
                self._ready[weights.version] = weights
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            version = self._first + len(self._parts)
            if self.future.done() or self._is_at_work or version not in self._ready:
                return
            self._is_at_work = True
            weights = self._ready.pop(version)
            chunk = self._next(version)
        # Not under the lock: a chunk that is written in this very thread is done when this returns.
        self._submit(weights, chunk).add_done_callback(self._finish)

    def _next(self, version: int) -> Chunk:
        is_last = version == self._chunk.round
        return replace(
            self._chunk,
            stop_at=0 if is_last else self._segment_tokens * (len(self._parts) + 1),
            begun=self._parts[-1].samples if self._parts else (),
        )

    def _finish(self, done: Future[Rollout]) -> None:
        # What is raised in a future's callback would be lost.
        try:
            part = done.result()
            with self._lock:
                self._parts.append(part)
                self._is_at_work = False
            if part.is_finished:
                self.future.set_result(joined(self._chunk, self._parts))
            else:
                self._go_on()
        except BaseException as error:
            self.future.set_exception(error)


def joined(chunk: Chunk, parts: list[Rollout]) -> Rollout:
    """One rollout of a chunk's segments: the last one's groups, and the tokens and time of all."""
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


def segments_of(round_: int, first: int, segment_tokens: int, count: int) -> list[tuple[int, int]]:
    """The (step, version) pairs of a chunk of `count` segments, by the closed form."""
    versions = range(first, round_ + 1)
    return [(segment_tokens * j, version) for j, version in enumerate(versions)][:count]
