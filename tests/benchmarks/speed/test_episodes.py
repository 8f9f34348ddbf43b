"""Both sides of the comparison of slow environments play the same episodes."""

from __future__ import annotations

import time

import pytest

from benchmarks.speed.episodes import with_sleep
from tests.support.environments import Echo, Play, chunk, player, weights, writer

ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)


def test_environments_that_sleep_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    slow = with_sleep(ECHO, 0.25)
    groups = player(slow, writer(24), decode_ahead=4).generate(weights(), chunk())
    quick = player(ECHO, writer(24), decode_ahead=4).generate(weights(), chunk())
    assert groups == quick
    turns = [len(s.episode.turns) for group in groups for s in group.samples if s.episode]
    # The first episode is played twice.
    assert slept == [0.25] * (sum(turns) + turns[0])
