"""Generator processes whose environments take their time. Children import this module."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Group
from tests.support.environments import Play, player
from tests.support.given_actions import Given, said

NUM_SAMPLES = 3
FOR_EVER = 3600.0


class Slow:
    """Ends at its second turn. Sleeps so many seconds when it begins and at its first turn."""

    def __init__(self, reset: float, step: float) -> None:
        self.seconds, self.pause, self.number = reset, step, 0

    def reset(self, example: Example, seed: int) -> str:
        time.sleep(self.seconds)
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        if self.number == 1:
            time.sleep(self.pause)
        return Turn("1", 0.5, is_done=self.number == 2)


class Fair(Reward):
    """Everything is worth one."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [(1.0,) * len(group.samples) for group in groups]


def worker(reset: float, step: float, options: dict[str, Any]) -> RolloutWorker:
    """A rollout worker for one chunk of `NUM_SAMPLES` samples of a prompt."""
    task = Play(functools.partial(Slow, reset, step))
    actions = [[said(turn)] * NUM_SAMPLES for turn in "ab"]
    return RolloutWorker(player(task, Given(actions), **options), Fair(), False)


def worker_of(reset: float, step: float, **options: Any) -> Callable[[], RolloutWorker]:
    """What makes such a worker in a process of its own. options: of episodes."""
    return functools.partial(worker, reset, step, options)
