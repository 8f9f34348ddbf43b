"""The queue of partial rollouts with over-provision: groups move from round to round until they are
complete; which ones a round has is decided in open_groups.py.

All groups in flight go on by one segment at a time, a number of tokens or of an episode's turns,
written by the round's own version. The round ends after the first segment by which
enough groups are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count, islice
from typing import Any

from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import Queued, RoundRollouts
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.open_groups import (
    OpenGroup,
    RecyclingRule,
    batches,
    chunk_of,
    merged,
    recycling_metrics,
    unbegun,
)
from rlhf_lab.rollout.worker import written_segments
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.rollouts import Rollout
from rlhf_lab.types.samples import Group

Writing = list[tuple[list[OpenGroup], Future[Rollout]]]


class GroupQueue:
    """Groups in flight; see `RoundQueue`. chunk_groups: that a generator writes at a time. mode:
    has the length of a segment."""

    def __init__(
        self, runner: ChunkRunner, rule: RecyclingRule, chunk_groups: int, mode: Mode
    ) -> None:
        self._runner = runner
        self._rule = rule
        self._chunk_groups = chunk_groups
        self._mode = mode
        self._groups: list[OpenGroup] = []
        self._next = (0, 0)
        self._unbegun = self._from(*self._next)
        self._taken_tokens = 0
        self._round = -1
        self._writing: Writing = []
        self._metrics: Metrics = {}

    def measures(self) -> Metrics:
        """Counts of the round that was taken last."""
        return self._metrics

    def tokens(self) -> tuple[int, int]:
        """Response tokens of the rounds taken so far and of the groups in flight, and the latter.
        What the present round has written counts when it is taken."""
        in_flight = sum(one.tokens for one in self._groups)
        return self._taken_tokens + in_flight, in_flight

    def fill(self, weights: Weights) -> None:
        """Begin as many groups as may be in flight, and have the first segment of all written."""
        if weights.version == self._round:
            return
        self._round = weights.version
        self._groups = [replace(one, steps=0) for one in self._groups]
        num_new = self._rule.num_new(len(self._groups), self._round)
        self._groups += islice(self._unbegun, num_new)
        if num_new:
            self._next = (self._groups[-1].number, self._groups[-1].place + 1)
        self._writing = []
        if self._groups and self._rule.chosen(self._groups, self._round) is None:
            self._writing = self._submit(self._groups, weights, 0)

    def finish(self) -> None:
        """Nothing to wait for: later versions continue all that is on its way."""

    def _from(self, number: int, place: int) -> Iterator[OpenGroup]:
        """The run's groups in the order of their prompts, from a place in a chunk on."""
        yield from unbegun(number, self._runner.chunk(number))[place:]
        for later in count(number + 1):
            yield from unbegun(later, self._runner.chunk(later))

    def _submit(self, groups: Sequence[OpenGroup], weights: Weights, index: int) -> Writing:
        """Have the next segment of all incomplete groups written. index: of the first chunk."""
        submit = self._runner.executor.submit
        return [
            (batch, submit(weights, chunk_of(batch, weights.version, n, self._mode.segment_steps)))
            for n, batch in enumerate(batches(groups, self._chunk_groups), index)
        ]

    def take(self, weights: Weights) -> RoundRollouts:
        """The groups of the round, in the order of their prompts; raises what a worker raised.

        Nothing changes before the round is complete: one that is interrupted begins anew.
        """
        groups, writing = self._groups, self._writing
        work: list[Rollout] = []
        while (chosen := self._rule.chosen(groups, weights.version)) is None:
            writing = writing or self._submit(groups, weights, len(work))
            parts = [(batch, self._runner.wait(future)) for batch, future in writing]
            groups = merged(groups, dict(written_groups(parts)))
            work += [part for _, part in parts]
            writing = []
        keys = {one.key for one in chosen}
        left = [one for one in groups if one.key not in keys]
        rollouts = [self._taken(one, n, weights.version) for n, one in enumerate(chosen)]
        self._metrics = recycling_metrics(self._groups, groups, chosen, self._rule, weights.version)
        self._groups = left
        self._taken_tokens += sum(one.tokens for one in chosen)
        for part in work:
            for note in part.report.notes:
                self._runner.report(note)
        return RoundRollouts(
            rollouts=rollouts,
            dropped=[],
            schedule=[self._row(*pair) for pair in zip(chosen, rollouts, strict=True)],
            work=[without_groups(part) for part in work],
        )

    def _taken(self, one: OpenGroup, index: int, round_: int) -> Rollout:
        """The group as a rollout of the round. Raises RuntimeError if it is too old."""
        if not 0 <= round_ - one.version <= self._rule.max_staleness:
            raise RuntimeError(
                f"off-policy accounting broken: round {round_} got prompt {one.group.prompt.id}, "
                f"begun by version {one.version}; the lag must be at most "
                f"{self._rule.max_staleness}"
            )
        return Rollout(
            chunk=replace(one.chunk, round=round_, index=index, prompts=(one.group.prompt,)),
            groups=(one.group,),
            segments=written_segments([one.group]),
            tokens={"generated_tokens": one.tokens},
        )

    def _row(self, one: OpenGroup, rollout: Rollout) -> dict[str, Any]:
        """The group's row of the schedule."""
        return {
            "round": rollout.chunk.round,
            "chunk": one.number,
            "place": one.place,
            "segments": [list(segment) for segment in rollout.segments],
            "dropped": False,
            "steps": rollout.steps,
            self._mode.segment_unit: self._mode.segment_steps,
        }

    def state(self) -> tuple[dict[str, Any], list[Queued]]:
        """What a checkpoint stores: where the stream of prompts is, and all groups in flight with
        what earlier rounds wrote of them."""
        return {"next": list(self._next), "taken_tokens": self._taken_tokens}, [*self._groups]

    def restore(
        self,
        counters: Mapping[str, Any],
        queued: Sequence[Queued],
        weights: Mapping[int, Weights],
    ) -> None:
        """Continue from a checkpoint: the present round is generated from its beginning."""
        self._runner.restore(weights)
        number, place = counters["next"]
        self._next = (number, place)
        self._unbegun = self._from(number, place)
        self._taken_tokens = counters["taken_tokens"]
        self._groups = [one for one in queued if isinstance(one, OpenGroup)]
        assert len(self._groups) == len(queued), "a queue of chunks in a run of groups"


def written_groups(
    parts: Sequence[tuple[Sequence[OpenGroup], Rollout]],
) -> Iterator[tuple[tuple[int, int], Group]]:
    """The groups of finished segments with their keys."""
    for batch, part in parts:
        yield from zip((one.key for one in batch), part.groups, strict=True)


def without_groups(part: Rollout) -> Rollout:
    """A segment as the work that it was: its tokens count with the groups that they belong to."""
    return replace(part, groups=(), tokens={**part.tokens, "generated_tokens": 0})
