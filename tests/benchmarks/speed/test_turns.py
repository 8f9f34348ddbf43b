"""Both sides of the comparison of turns play the same episodes."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.speed.turns import tokens_per_second, turn_by_turn
from rlhf_lab.types.samples import Finish
from tests.support.environments import Echo, Play, chunk, player, weights, writer

ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)


def test_turns_that_are_taken_together_are_those_of_rows_by_themselves() -> None:
    made = writer(24)
    together = turn_by_turn(player(ECHO, made), weights(), chunk(), ECHO.max_turns)
    alone = player(ECHO, writer(24)).generate(weights(), chunk())
    texts = [[(s.tokens, s.finish) for s in group.samples] for group in together]
    assert texts == [[(s.tokens, s.finish) for s in group.samples] for group in alone]
    # The third turn is the last one of all.
    assert len(made.rows) == 3
    assert all(s.finish is not Finish.unfinished for group in together for s in group.samples)


def test_no_turn_is_begun_when_all_have_ended() -> None:
    made = writer(24)
    turn_by_turn(player(replace(ECHO, max_turns=1), made), weights(), chunk(), 5)
    assert len(made.rows) == 1


def test_tokens_are_those_that_the_policy_wrote() -> None:
    groups = player(ECHO, writer(24)).generate(weights(), chunk())
    speed, played = tokens_per_second(lambda: groups)
    assert speed > 0 and played is groups
