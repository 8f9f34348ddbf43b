"""Games of other packages: which of their calls wait for each other."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from rlhf_lab.tasks.optional_packages import ONE_AT_A_TIME
from rlhf_lab.tasks.text_games import NoTurn, PlayedGame, TextGames
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

LONG = 20.0


class Dice:
    """Shows a global random number in every turn."""

    def reset(self, seed: int) -> str:
        return "roll"

    def step(self, action: str) -> tuple[str, float, bool, dict[str, float]]:
        return str(random.random()), 0.0, False, {}


@dataclass(frozen=True)
class Rolling(TextGames):
    name: str = "rolling"

    def game(self) -> Dice:
        return Dice()


@dataclass(frozen=True)
class Elsewhere(Rolling):
    """The same, as if its random numbers were drawn by a server."""

    shares_random: ClassVar[bool] = False


def begun(task: TextGames) -> PlayedGame:
    game = task.environment()
    game.reset(task.examples(Split.train)[0], 0)
    return game


def ends_while_another_is_called(call: Callable[[], object], seconds: float) -> bool:
    """Whether a call returns while this thread is within a call with global random numbers."""
    ended = threading.Event()

    def run() -> None:
        call()
        ended.set()

    with ONE_AT_A_TIME:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        found = ended.wait(seconds)
    thread.join()
    return found


def test_games_with_random_numbers_of_their_own_do_not_wait_for_others() -> None:
    game = begun(Elsewhere())
    assert ends_while_another_is_called(lambda: game.step("on", True), LONG)


def test_games_that_share_random_numbers_are_called_one_at_a_time() -> None:
    game = begun(Rolling())
    assert not ends_while_another_is_called(lambda: game.step("on", True), 0.05)


@pytest.mark.parametrize("task", [Rolling(), Elsewhere()])
def test_two_games_of_a_row_see_the_same_numbers_where_they_share_them(task: TextGames) -> None:
    one, other = begun(task), begun(task)
    first = [one.step("on", True).observation for _ in range(2)]
    state = random.getstate()
    second = [other.step("on", True).observation for _ in range(2)]
    assert (first == second) is task.shares_random
    assert (random.getstate() == state) is task.shares_random, "no trace in others"


@dataclass(frozen=True)
class OnlyFirst(Rolling):
    """Games of all rows but the first are over when they begin."""

    def game(self) -> Dice:
        return Over(self.seed(Split.train, 0))


class Over(Dice):
    def __init__(self, first: int) -> None:
        self.first = first

    def reset(self, seed: int) -> str:
        if seed != self.first:
            raise NoTurn
        return super().reset(seed)


def test_a_game_that_is_over_before_the_first_turn_is_refused_with_its_row() -> None:
    task = OnlyFirst(env_id="dice")
    rows = task.examples(Split.train)
    assert rows[0].prompt == "roll\n"
    complaint = r"^row rolling/dice/train/3 ends before the policy may act: pass other settings in "
    with pytest.raises(UserError, match=complaint):
        rows[3]
    with pytest.raises(UserError, match=r"^row rolling/dice/validation/0 ends before the policy"):
        task.examples(Split.validation)
    # Where the prompt was made, the game went on.
    other = Example("row/7", "roll\n", "", {"seed": 7, "first": "roll"})
    with pytest.raises(UserError, match=r"^row row/7 ends before the policy may act: "):
        task.environment().reset(other, 0)
