"""Episodes of given actions, without a policy."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.samples import Example


def turns_of(task: Task, row: Example, actions: Sequence[str], seed: int = 0) -> list[Turn]:
    """The turns of these actions, all of them finished, up to the end of the episode."""
    environment = task.environment()
    assert environment.reset(row, seed) == ""
    turns = []
    for action in actions:
        turns.append(environment.step(action, True))
        if turns[-1].is_done:
            break
    return turns
