"""Episodes that are stopped after some turns and go on later, perhaps under other weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlhf_lab.rollout.worker import written_tokens
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group
from tests.support.environments import (
    EOS,
    Echo,
    Play,
    Script,
    chunk,
    player,
    prompt,
    weights,
    writer,
)
from tests.support.given_actions import Given, said

ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)


def goes_on(part: Chunk, groups: Sequence[Group]) -> Chunk:
    return replace(part, begun=tuple(s for group in groups for s in group.samples))


@pytest.mark.parametrize("stops", [(1, 2, 0), (1, 0), (2, 0)])
def test_an_episode_in_parts_has_the_bits_and_counts_of_a_whole_one(stops: tuple[int, ...]) -> None:
    whole = player(ECHO, writer(24)).generate(weights(), chunk())
    part, total = chunk(), dict.fromkeys(written_tokens(chunk(), whole), 0)
    for stop in stops:
        # A generator of its own: nothing but the samples is kept.
        part = replace(part, stop_at=stop)
        groups = player(ECHO, writer(24)).generate(weights(), part)
        turns = [len(s.episode.turns) for group in groups for s in group.samples if s.episode]
        assert max(turns) == (stop or 3)
        for name, count in written_tokens(part, groups).items():
            total[name] += count
        part = goes_on(part, groups)
    assert groups == whole
    assert total == written_tokens(chunk(), whole)


def test_samples_that_had_ended_stay_as_they_are() -> None:
    part = replace(chunk(), stop_at=1)
    begun = goes_on(part, player(ECHO, writer(24)).generate(weights(), part))
    whole = replace(begun, stop_at=0)
    after = goes_on(whole, player(ECHO, writer(24)).generate(weights(0.5), whole))
    kept = [s.finish is not Finish.unfinished for s in begun.begun]
    assert set(kept) == {True, False}
    for before, now, has_ended in zip(begun.begun, after.begun, kept, strict=True):
        assert (now == before) == has_ended
        assert now.tokens[: len(before.tokens)] == before.tokens
        assert now.finish is not Finish.unfinished


class Newer:
    """A version a step, which notes the steps that it was asked for."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def at(self, step: int) -> Weights:
        self.steps.append(step)
        return Weights(10 + step, {})


def test_weights_are_read_once_a_turn() -> None:
    """Two samples, of which the second ends a turn earlier."""
    turns = [Turn("1"), Turn("1"), Turn(is_done=True)]
    given = Given([[said("12"), said("1")], [said("1"), [2] * 4], [said("1;")]])
    feed = Newer()
    whole = Chunk(0, 0, (prompt(),), 2)
    (group,) = player(Play(lambda: Script(turns)), given).generate(feed, whole)
    assert feed.steps == [0, 1, 2]
    first, second = group.samples
    assert first.versions == (10, 10, 10, 11, 11, 12, 12, 12)
    assert second.tokens == (6, EOS, 2, 2, 2, 2)
    assert second.versions == (10, 10, 11, 11, 11, 11)
    assert (first.version, first.newest_version) == (10, 12)


def test_an_environment_that_answers_otherwise_the_next_time_is_refused() -> None:
    answers = iter("112")

    class Moody:
        def reset(self, example: Example, seed: int) -> str:
            return ""

        def step(self, action: str, finished: bool) -> Turn:
            return Turn(next(answers))

    part = Chunk(0, 0, (prompt(),), 1, stop_at=1)
    generator = player(Play(Moody), Given([[said("a")]]))
    # The answer 1, and again when the first episode of the chunk is repeated.
    begun = goes_on(part, generator.generate(Weights(0, {}), part))
    with pytest.raises(UserError, match=r"row row/0, turn 1: played again .* step gave something"):
        generator.generate(Weights(0, {}), replace(begun, stop_at=2))
