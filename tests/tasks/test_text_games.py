"""Games of other packages: which of their calls wait for each other."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest

from rlhf_lab.tasks.global_random import ONE_AT_A_TIME
from rlhf_lab.tasks.text_games import PlayedGame, TextGames
from rlhf_lab.types.samples import Split

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
