"""Episodes that are stopped after some turns and go on later, perhaps under other weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlhf_lab.rollout.worker import written_tokens
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Sample
from tests.support.environments import (
    Echo,
    Play,
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
def test_an_episode_in_parts_is_the_whole_one(stops: tuple[int, ...]) -> None:
    """A part reads the whole context anew: log-probs are equal up to rounding."""
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
    for group, other in zip(groups, whole, strict=True):
        for sample, wanted in zip(group.samples, other.samples, strict=True):
            assert (sample.tokens, sample.text) == (wanted.tokens, wanted.text)
            assert sample.logps == pytest.approx(wanted.logps, abs=2e-5)
            assert sample.episode is not None and wanted.episode is not None
            assert replace(sample.episode, read_tokens=0) == replace(wanted.episode, read_tokens=0)
    counts = written_tokens(chunk(), whole)
    assert total.pop("prefill_tokens") > counts.pop("prefill_tokens")
    assert total == counts


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
    """A version a step, of the same weights, which notes the steps that it was asked for."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def at(self, step: int) -> Weights:
        self.steps.append(step)
        return weights(version=10 + step)


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
def test_weights_are_read_at_every_token_observed_ones_included(decode: str) -> None:
    feed = Newer()
    groups = player(ECHO, writer(24, decode)).generate(feed, chunk())
    longest = max(sample.steps for group in groups for sample in group.samples)
    assert feed.steps == list(range(longest))
    assert max(len(s.tokens) for group in groups for s in group.samples) < longest
    for sample in (sample for group in groups for sample in group.samples):
        place, expected = 0, []
        for is_observed, tokens in sample.pieces():
            if not is_observed:
                expected += [10 + place + index for index in range(len(tokens))]
            place += len(tokens)
        assert (sample.versions or (sample.version,)) == tuple(expected)


def test_rows_do_not_wait_for_the_turns_of_others() -> None:
    """Turn by turn, a chunk takes the longest action of each turn, one after the other."""
    groups = player(ECHO, writer(24)).generate(weights(), chunk(12))
    samples = [sample for group in groups for sample in group.samples]
    together = max(sample.steps for sample in samples)
    in_turns = sum(
        max(lengths_of_turn)
        for lengths_of_turn in itertools.zip_longest(*map(turn_lengths, samples), fillvalue=0)
    )
    observed = max(s.episode.observed_tokens for s in samples if s.episode)
    assert together < in_turns + observed


def turn_lengths(sample: Sample) -> list[int]:
    assert sample.episode is not None
    ends = [-1, *(last for last, _ in sample.episode.turns)]
    return [after - before for before, after in itertools.pairwise(ends)]


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
