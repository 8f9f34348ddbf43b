"""Groups that may go on in later rounds, and which of them a round ends with (APRIL,
arXiv:2509.18521): more are begun than a round needs, and those that it did not wait for are
continued by the next weights.

Which groups end first follows from token positions, as in a batch in which every unfinished sample
gets one token a step, those of observations included: no clock is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import UNBEGUN, Finish, Group


@dataclass(frozen=True)
class OpenGroup:
    """A group that no round has trained on.

    number: of its chunk over the run; place: within the chunk. group: its samples so far, with
    rewards once all have ended. steps: of generation that its longest new parts took in this round.
    """

    number: int
    place: int
    chunk: Chunk
    group: Group
    steps: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Its position in the order of prompts."""
        return self.number, self.place

    @property
    def is_complete(self) -> bool:
        return self.group.is_finished

    @property
    def tokens(self) -> int:
        """Response tokens so far, over all samples."""
        return sum(len(sample.tokens) for sample in self.group.samples)

    @property
    def all_steps(self) -> int:
        """Steps of generation so far, over all samples: tokens, those of observations included."""
        return sum(sample.steps for sample in self.group.samples)

    @property
    def position(self) -> int:
        """Where its unfinished samples stand, which are all as far: tokens, or turns played."""
        samples, by_tokens = self.group.samples, self.chunk.stops_by_tokens
        return max((not by_tokens and s.num_turns) or len(s.tokens) for s in samples)

    @property
    def version(self) -> int:
        """The oldest version that wrote a token. The group must have some."""
        return min(sample.version for sample in self.group.samples)

    def with_written(self, group: Group) -> OpenGroup:
        """The group after a segment. group: the same samples, continued."""
        pairs = zip(self.group.samples, group.samples, strict=True)
        new = max(after.steps - before.steps for before, after in pairs)
        return replace(self, group=group, steps=self.steps + new)


def unbegun(number: int, chunk: Chunk) -> list[OpenGroup]:
    """The groups of a chunk before their first token."""
    return [
        OpenGroup(number, place, chunk, Group(prompt, (UNBEGUN,) * chunk.group_size))
        for place, prompt in enumerate(chunk.prompts)
    ]


@dataclass(frozen=True)
class RecyclingRule:
    """How many groups a round has, and which.

    groups: that a round trains on. in_flight: that it generates, recycled ones included, at most
    twice as many. total: of the whole run. max_staleness: rounds that a group may be old. Since at
    most as many are recycled as a round trains on, no round has more groups that are due.
    """

    groups: int
    in_flight: int
    total: int
    max_staleness: int

    def __post_init__(self) -> None:
        assert self.groups <= self.in_flight <= 2 * self.groups, self
        assert self.max_staleness > 0, self

    @classmethod
    def of(
        cls, groups: int, num_rounds: int, over_provision: float, max_staleness: int
    ) -> RecyclingRule:
        """The rule for rounds of `groups` groups, of which `over_provision` times as many are
        generated, rounded up."""
        return cls(groups, math.ceil(groups * over_provision), groups * num_rounds, max_staleness)

    def num_new(self, num_open: int, round_: int) -> int:
        """Groups to begin in a round that `num_open` ones are left for: none beyond the run's
        end."""
        begun = round_ * self.groups + num_open
        return min(self.in_flight - num_open, self.total - begun)

    def is_due(self, one: OpenGroup, round_: int) -> bool:
        """Whether the group would be too old for the round after this one."""
        return one.position > 0 and round_ - one.version >= self.max_staleness

    def chosen(self, groups: Sequence[OpenGroup], round_: int) -> list[OpenGroup] | None:
        """The groups that the round trains on, in the order of their prompts; None while it has to
        go on.

        All that are due, then those that needed the fewest steps in this round, then the earlier
        prompt. A round goes on until it has enough complete groups, and until none is due that is
        incomplete.
        """
        complete = [one for one in groups if one.is_complete]
        waits = any(self.is_due(one, round_) and not one.is_complete for one in groups)
        if waits or len(complete) < self.groups:
            return None
        complete.sort(key=lambda one: (not self.is_due(one, round_), one.steps, one.key))
        return sorted(complete[: self.groups], key=lambda one: one.key)


def batches(groups: Sequence[OpenGroup], size: int) -> list[list[OpenGroup]]:
    """The incomplete groups as lists of at most `size`, the furthest first. All of a list are
    equally far, so that a generator continues them in step."""
    by_position: dict[int, list[OpenGroup]] = {}
    for one in groups:
        if not one.is_complete:
            by_position.setdefault(one.position, []).append(one)
    return [
        same[start : start + size]
        for _, same in sorted(by_position.items(), reverse=True)
        for start in range(0, len(same), size)
    ]


def chunk_of(batch: Sequence[OpenGroup], round_: int, index: int, segment_steps: int) -> Chunk:
    """The chunk that continues these groups by one segment, or begins them."""
    start = batch[0].position
    begun = tuple(sample for one in batch for sample in one.group.samples)
    return replace(
        batch[0].chunk,
        round=round_,
        index=index,
        prompts=tuple(one.group.prompt for one in batch),
        stop_at=start + segment_steps,
        begun=begun if start else (),
        scores_groups=True,
    )


def merged(
    groups: Sequence[OpenGroup], written: Mapping[tuple[int, int], Group]
) -> list[OpenGroup]:
    """The groups after a segment of those in `written`, by key."""
    return [one.with_written(written[one.key]) if one.key in written else one for one in groups]


def recycling_metrics(
    before: Sequence[OpenGroup],
    after: Sequence[OpenGroup],
    chosen: Sequence[OpenGroup],
    rule: RecyclingRule,
    round_: int,
) -> Metrics:
    """before, after: all groups in flight at the round's first step and at its last. chosen: those
    that it trains on. Docs of each are in runs/metric_names.py."""
    keys = {one.key for one in chosen}
    left = [one for one in after if one.key not in keys]
    trained = sum(one.tokens for one in chosen)
    earlier = sum(tokens_before(one, round_) for one in chosen)
    metrics: Metrics = {
        "recycled/groups": sum(one.position > 0 for one in before),
        "recycled/groups_due": sum(rule.is_due(one, round_) for one in before),
        "recycled/groups_left": len(left),
        "recycled/groups_ahead": sum(one.is_complete for one in left),
        "recycled/tokens": earlier,
        "recycled/share": earlier / trained,
        "recycled/steps": max(one.steps for one in after),
        "recycled/idle": idle_share(before, after),
    }
    if samples := [sample for one in left for sample in one.group.samples]:
        metrics["recycled/length_left"] = sum(len(s.tokens) for s in samples) / len(samples)
    return metrics


def tokens_before(one: OpenGroup, round_: int) -> int:
    """Tokens of a group that versions before the round's own wrote."""
    return sum(
        sum(version < round_ for version in sample.versions)
        if sample.versions
        else len(sample.tokens) * (sample.version < round_)
        for sample in one.group.samples
    )


def idle_share(before: Sequence[OpenGroup], after: Sequence[OpenGroup]) -> float:
    """Share of the round's decode steps, over all samples that were unfinished at its first one, in
    which a sample got no token because it had ended; 0 if the round decoded nothing."""
    steps = max(one.steps for one in after)
    slots = sum(s.finish is Finish.unfinished for one in before for s in one.group.samples)
    written = sum(one.all_steps for one in after) - sum(one.all_steps for one in before)
    return 1 - written / (steps * slots) if steps else 0.0
