"""Experience replay: groups of earlier rounds that are trained on again (arXiv:2604.08706)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.training.round_metrics import histogram
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.run_options import ReplayChoice, RunOptions
from rlhf_lab.types.samples import Group


@dataclass(frozen=True)
class StoredGroup:
    """A group that a round has trained on. number: of its chunk over the run; place: its number
    within the chunk; round: which trained on it first; uses: rounds that trained on it."""

    number: int
    place: int
    round: int
    uses: int
    group: Group


class ReplayBuffer:
    """The groups of the last `run.buffer_rounds` rounds. Which of them a round repeats depends on
    the seed and the round alone, so that it is the same in every mode and after a resume."""

    def __init__(
        self, run_options: RunOptions, seed: int, stored: Sequence[StoredGroup] = ()
    ) -> None:
        self._options = run_options
        self._seed = seed
        self._stored = list(stored)

    @property
    def stored(self) -> Sequence[StoredGroup]:
        """The content, oldest first: what a checkpoint keeps."""
        return tuple(self._stored)

    def draw(self, round_: int) -> list[StoredGroup]:
        """The groups that a round repeats, oldest first, as they were before it: all that the
        buffer holds while these are fewer than run.fresh_share leaves room for."""
        oldest = round_ - self._options.buffer_rounds
        self._stored = [one for one in self._stored if one.round >= oldest]
        order_C = self._order(round_)[: self._options.groups_replayed]
        drawn = [self._stored[place] for place in sorted(order_C.tolist())]
        for place in order_C.tolist():
            one = self._stored[place]
            self._stored[place] = replace(one, uses=one.uses + 1)
        return drawn

    def _order(self, round_: int) -> Tensor:
        """All places in the buffer in a random order without replacement, the likely ones first:
        log-weights with Gumbel noise, sorted (arXiv:1903.06059)."""
        key = stable_hash(self._seed, "replay", round_) & (2**63 - 1)
        generator = torch.Generator().manual_seed(key)
        noise_C = torch.rand(len(self._stored), dtype=torch.float64, generator=generator)
        weights = [self._weight(one, round_) for one in self._stored]
        log_C = torch.tensor(weights, dtype=torch.float64).log()
        return torch.argsort(log_C - (-noise_C.log()).log(), descending=True, stable=True)

    def _weight(self, one: StoredGroup, round_: int) -> float:
        """How likely a group is drawn, up to a constant factor."""
        if self._options.replay_sampling is ReplayChoice.recency:
            return 1 / (round_ - one.round)
        if self._options.replay_sampling is ReplayChoice.advantage:
            return spread(one.group.rewards)
        return 1.0

    def store(self, round_: int, rollouts: RoundRollouts, groups: Sequence[Group]) -> None:
        """Keep the groups that a round was the first to train on."""
        wanted = {id(group) for group in groups}
        for number, place, group in rollouts.origins:
            if id(group) in wanted:
                self._stored.append(StoredGroup(number, place, round_, 1, group))


def spread(rewards: Sequence[float]) -> float:
    """The standard deviation of a group's rewards: the scale of its advantages."""
    mean = math.fsum(rewards) / len(rewards)
    return math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))


def replay_metrics(drawn: Sequence[StoredGroup], groups: int, round_: int) -> Metrics:
    """Share of repeated groups among those of a round, how often rounds have trained on them
    before, and how many rounds ago the first did."""
    return {
        "replay/share": len(drawn) / groups,
        **histogram("replay/uses", Counter(one.uses for one in drawn)),
        **histogram("replay/age", Counter(round_ - one.round for one in drawn)),
    }
