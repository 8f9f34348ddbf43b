"""Environments that do what they must not: the error names task, row and turn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rlhf_lab.tasks.environment import Environment, Turn
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from tests.support.environments import Play, Script
from tests.support.given_actions import played, said

THREE = [[said("1")], [said("2")], [said("1")]]


class Broken:
    """Raises at one of its turns, 0 for the reset; only where it is played the second time, or
    always."""

    begun = 0

    def __init__(self, turn: int, only_again: bool = False) -> None:
        self.turn, self.only_again, self.number = turn, only_again, 0

    def reset(self, example: Example, seed: int) -> str:
        Broken.begun += 1
        self.fail_at(0)
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        self.fail_at(self.number)
        return Turn("1", is_done=self.number == 3)

    def fail_at(self, turn: int) -> None:
        if turn == self.turn and (Broken.begun > 1 or not self.only_again):
            raise LookupError("nothing there")


def play(environment: Environment) -> None:
    played(Play(lambda: environment), THREE)


@pytest.mark.parametrize("only_again", [False, True])
@pytest.mark.parametrize(
    ("turn", "note"),
    [
        (0, "raised by reset of the environment of task=play, row row/0, turn 1"),
        (1, "raised by the environment of task=play, row row/0, turn 1"),
        (3, "raised by the environment of task=play, row row/0, turn 3"),
    ],
)
def test_what_an_environment_raises_keeps_its_type_and_gets_a_note(
    turn: int, note: str, only_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "begun", 0)
    with pytest.raises(LookupError, match="nothing there") as raised:
        played(Play(lambda: Broken(turn, only_again)), THREE)
    assert raised.value.__notes__ == [note]
    assert Broken.begun == (2 if only_again else 1)


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ("1", r"step returned str: return rlhf_lab\.tasks\.environment\.Turn"),
        (None, "step returned NoneType: return"),
        (Turn(1), "the observation is no text: 1"),  # type: ignore[arg-type]
        (Turn(None), "the observation is no text: None"),  # type: ignore[arg-type]
        (Turn(reward=float("nan")), "reward is nan: pass a finite number"),
        (Turn(reward=float("inf")), "reward is inf: pass a finite number"),
        (Turn(reward=None), "reward is None: pass a finite number"),  # type: ignore[arg-type]
        (Turn(info={"calls": float("-inf")}), "calls is -inf: pass a finite number"),
        (Turn(info={"done": 1.0}), "info has done, which every episode has: choose another name"),
        (Turn(info={"calls": "2"}), "calls is '2': pass"),  # type: ignore[dict-item]
        (Turn(reward=float("nan"), info={"reward": 1.0}), "reward is nan: pass"),
    ],
)
def test_what_is_no_turn_is_refused_where_it_happens(second: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=rf"^task=play, row row/0, turn 2: {complaint}"):
        play(Script([Turn("1"), second, Turn(is_done=True)]))


@pytest.mark.parametrize("first", [None, 3, ["1"]])
def test_a_reset_that_returns_no_text_is_refused(first: Any) -> None:
    name = type(first).__name__
    with pytest.raises(UserError, match=rf"^task=play, row row/0, turn 1: reset returned {name}"):
        play(Script([Turn(is_done=True)], first=first))


def test_an_observation_may_have_as_many_tokens_as_the_task_says() -> None:
    fits, longer = "1;2;1;2;", "1;2;1;2;1"
    play(Script([Turn(fits), Turn(), Turn(is_done=True)], first=fits))
    complaint = r"an observation has 9 tokens, more than task\.max_observation_tokens=8: raise it"
    with pytest.raises(UserError, match=rf"^task=play, row row/0, turn 1: {complaint}"):
        play(Script([Turn(is_done=True)], first=longer))
    with pytest.raises(UserError, match=rf"^task=play, row row/0, turn 2: {complaint}"):
        play(Script([Turn(), Turn(longer), Turn(is_done=True)]))
    # At the end of an episode nobody reads it.
    play(Script([Turn(longer, is_done=True)]))


class Moody:
    """What it does depends on a generator of random numbers that all environments share."""

    def __init__(self, where: str) -> None:
        self.where, self.number = where, 0

    def drawn(self, where: str) -> float:
        return random.random() if self.where == where else 0.0

    def reset(self, example: Example, seed: int) -> str:
        return "1" if self.drawn("reset") < 0.5 else "2"

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        if self.number == 2:
            info: Mapping[str, float] = {"mood": self.drawn("info")}
            return Turn("1", self.drawn("reward"), info=info)
        return Turn("1", is_done=self.number == 3)


@pytest.mark.parametrize(
    ("where", "turn"), [("reset", "turn 1: .* reset"), ("reward", "turn 2"), ("info", "turn 2")]
)
def test_an_environment_that_does_not_repeat_itself_is_refused(
    where: str, turn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter([0.25, 0.75])
    monkeypatch.setattr(random, "random", lambda: next(numbers))
    complaint = rf"^task=play, row row/0, {turn}.* gave something else: .* take its random numbers"
    with pytest.raises(UserError, match=complaint):
        played(Play(lambda: Moody(where)), THREE)


def test_an_environment_that_repeats_itself_is_taken() -> None:
    played(Play(lambda: Moody("nowhere")), THREE)
