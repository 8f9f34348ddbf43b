"""Environments that do not work are refused before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rlhf_lab.experiment.rules.checks import require_working_parts
from rlhf_lab.experiment.rules.tasks import require_working_environment
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.tool_arithmetic import CalculatorEnvironment, ToolArithmetic
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from tests.conftest import MakeConfig
from tests.support.environments import Script


@dataclass(frozen=True)
class Worldly(ToolArithmetic):
    """The task with another environment."""

    make: Callable[[], Any] = lambda: CalculatorEnvironment(4, 0.02, 9)

    def environment(self) -> Any:
        return self.make()


class Raising:
    def reset(self, example: Example, seed: int) -> str:
        raise KeyError("no such fact")


class Counting:
    """Another answer each time."""

    number = 0

    def reset(self, example: Example, seed: int) -> str:
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        Counting.number += 1
        return Turn(reward=Counting.number)


def gives(turn: Any, first: Any = "") -> Callable[[], Script]:
    return lambda: Script([turn], first)


@pytest.mark.parametrize(
    ("make", "error", "complaint"),
    [
        (Raising, KeyError, "no such fact"),
        (Counting, UserError, "turn 1: played again .* gave something else"),
        (gives("33;"), UserError, "turn 1: step returned str: return rlhf_lab"),
        (gives(Turn(reward=float("nan"))), UserError, "turn 1: reward is nan: pass a finite numb"),
        (gives(Turn(), None), UserError, "turn 1: reset returned NoneType: return the text"),
    ],
)
def test_an_environment_that_does_not_work_is_refused_before_the_first_step(
    config_of: MakeConfig, make: Callable[[], Any], error: type[Exception], complaint: str
) -> None:
    broken = replace(config_of("task=tool_arithmetic"), task=Worldly(make=make))
    for require in (require_working_environment, require_working_parts):
        with pytest.raises(error, match=complaint) as refused:
            require(broken)
        told = " ".join([str(refused.value), *getattr(refused.value, "__notes__", [])])
        assert "task=tool_arithmetic, row tool_arithmetic/train/0, turn 1" in told


def test_environments_that_work_are_begun_and_take_an_unfinished_action(
    config_of: MakeConfig,
) -> None:
    for task in ("tool_arithmetic", "ask_nano", "twenty_questions"):
        require_working_parts(config_of(f"task={task}"))
    world = Script([Turn("never read")])
    config = config_of("task=tool_arithmetic")
    require_working_environment(replace(config, task=Worldly(make=lambda: world)))
    assert world.seen == [("", False)] * 2
    require_working_environment(config_of("task=arithmetic"))
