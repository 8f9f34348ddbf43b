"""Episodes that are stopped after some turns and go on later, perhaps under other weights."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlhf_lab.rollout.worker import written_tokens
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.training.checkpoint_files import group_row, read_group
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Episode, Example, Finish, Group, Sample
from tests.support.environments import (
    EOS,
    Echo,
    Play,
    Script,
    chunk,
    ids,
    player,
    prompt,
    weights,
    writer,
)
from tests.support.given_actions import Given, said

pytestmark = pytest.mark.usefixtures("costly")

ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)


def goes_on(part: Chunk, groups: Sequence[Group]) -> Chunk:
    """The chunk with these samples, as a checkpoint stores them."""
    rows = json.loads(json.dumps([group_row(group) for group in groups]))
    read = [read_group(group.prompt, row) for group, row in zip(groups, rows, strict=True)]
    return replace(part, begun=tuple(s for group in read for s in group.samples))


def episode_of(sample: Sample) -> Episode:
    assert sample.episode is not None
    return sample.episode


def begun_of(sample: Sample) -> tuple[int, ...]:
    """The tokens behind the last turn."""
    turns = episode_of(sample).turns
    return sample.tokens[turns[-1][0] + 1 if turns else 0 :]


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
@pytest.mark.parametrize(
    ("stops", "by_tokens"),
    [
        ((1, 2, 0), False),
        ((1, 0), False),
        ((2, 0), False),
        ((3, 6, 9, 0), True),
        ((7, 0), True),
        (tuple(range(1, 25)), True),
    ],
)
def test_an_episode_in_parts_is_the_whole_one(
    stops: tuple[int, ...], by_tokens: bool, decode: str
) -> None:
    """A part reads the whole context anew: log-probs are equal up to rounding."""
    whole = player(ECHO, writer(24, decode)).generate(weights(), chunk())
    part = replace(chunk(), stops_by_tokens=by_tokens)
    total, num_cut = dict.fromkeys(written_tokens(chunk(), whole), 0), 0
    for stop in stops:
        # A generator of its own: nothing but the samples is kept.
        part = replace(part, stop_at=stop)
        groups = player(ECHO, writer(24, decode)).generate(weights(), part)
        samples = [sample for group in groups for sample in group.samples]
        if by_tokens:
            going_on = [s for s in samples if s.finish is Finish.unfinished]
            assert {len(s.tokens) for s in going_on} <= {stop}
            num_cut += sum(bool(begun_of(sample)) for sample in going_on)
        else:
            assert max(len(s.episode.turns) for s in samples if s.episode) == (stop or 3)
        for name, count in written_tokens(part, groups).items():
            total[name] += count
        part = goes_on(part, groups)
        if not any(sample.finish is Finish.unfinished for sample in samples):
            break
    assert by_tokens == (num_cut > 5)
    for group, other in zip(groups, whole, strict=True):
        for sample, wanted in zip(group.samples, other.samples, strict=True):
            assert (sample.tokens, sample.text) == (wanted.tokens, wanted.text)
            assert sample.logps == pytest.approx(wanted.logps, abs=2e-5)
            assert sample.episode is not None and wanted.episode is not None
            assert replace(sample.episode, read_tokens=0) == replace(wanted.episode, read_tokens=0)
    counts = written_tokens(chunk(), whole)
    assert total.pop("prefill_tokens") > counts.pop("prefill_tokens")
    assert total == counts


def test_a_part_writes_its_stretch_of_the_tokens_of_each_episode() -> None:
    part = replace(chunk(), stops_by_tokens=True)
    for number, stop in enumerate((5, 10, 0)):
        part = replace(part, stop_at=stop)
        made, newer = player(ECHO, writer(24)), weights(1 - number / 10, 4 + number)
        part = goes_on(part, made.generate(newer, part))
    lengths = [len(sample.tokens) for sample in part.begun]
    assert min(lengths) <= 10 and max(lengths) > 10
    for sample in part.begun:
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        assert versions == tuple(4 + min(n // 5, 2) for n in range(len(sample.tokens)))


@pytest.mark.parametrize(("stop", "by_tokens"), [(1, False), (12, True)])
def test_samples_that_had_ended_stay_as_they_are(stop: int, by_tokens: bool) -> None:
    part = replace(chunk(), stop_at=stop, stops_by_tokens=by_tokens)
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


def parts_of(
    task: Play, calls: Sequence[Sequence[Sequence[int]]], stops: Sequence[int]
) -> list[tuple[Sample, dict[str, int]]]:
    """The sample of one prompt (of two tokens) after each segment, with what was read and written
    in it. calls: what the writer has yet to write at each of its calls."""
    part = Chunk(0, 0, (prompt(text="12"),), 1, stops_by_tokens=True)
    made, found = player(task, Given(calls)), []
    for version, stop in enumerate(stops):
        part = replace(part, stop_at=stop)
        groups = made.generate(Weights(version, {}), part)
        found.append((groups[0].samples[0], written_tokens(part, groups)))
        part = goes_on(part, groups)
    return found


def counts(read: int, written: int, observed: int) -> dict[str, int]:
    return {
        "prefill_tokens": read,
        "generated_tokens": written,
        "observed_tokens": observed,
        "offline_tokens": 0,
    }


def test_an_action_is_handed_to_its_environment_once_all_segments_have_written_it() -> None:
    """`abc` in segments of two tokens: a b, then c and its end, behind which `;;` is read."""
    worlds: list[Script] = []

    def world() -> Script:
        worlds.append(Script([Turn(";;", 0.5), Turn(reward=1.0, is_done=True)]))
        return worlds[-1]

    calls = [[[*ids("a"), *ids("b")]], [[*ids("c"), EOS]], [said("d")]]
    (first, begun), (second, middle), (third, end) = parts_of(Play(world), calls, (2, 4, 0))
    assert first.tokens == (*ids("a"), *ids("b")) and first.finish is Finish.unfinished
    assert episode_of(first) == replace(Episode(), read_tokens=episode_of(first).read_tokens)
    # That of the first segment, and that of its repetition, were not called.
    assert worlds[0].seen == worlds[1].seen == []
    assert begun == counts(2, 2, 0)
    # The second part ends exactly with the action. What is observed there, the third part reads.
    assert second.tokens == (*first.tokens, *said("c")) and second.finish is Finish.unfinished
    assert worlds[2].seen == [("abc", True)]
    assert episode_of(second).turns == ((3, 0.5),)
    assert episode_of(second).observed == ((4, tuple(ids(";;"))),)
    assert middle == counts(2 + 2, 2, len(ids(";;")))
    assert end == counts(2 + 4 + len(ids(";;")), 2, 0)
    assert worlds[4].seen == [("abc", True), ("d", True)]
    assert third.versions == (0, 0, 1, 1, 2, 2) and third.finish is Finish.eos
    assert episode_of(third).turns == ((3, 0.5), (5, 1.0))


def test_an_action_that_segments_share_has_the_room_of_one() -> None:
    """Four tokens a turn, of which the first segment writes three: the second has one, and the
    action ends with it, cut."""
    world = Script([Turn(";")])
    calls = [[ids("a") * 3], [ids("b") * 9]]
    (_, (sample, _)) = parts_of(Play(lambda: world, max_turn_tokens=4), calls, (3, 6))
    assert sample.tokens == (*ids("a") * 3, *ids("b"))
    assert sample.finish is Finish.length
    # Once more when it was repeated.
    assert world.seen == [("aaab", False)] * 2


def test_an_action_cut_at_its_limit_where_a_segment_ends_is_over() -> None:
    """As without segments, whose environment is called with what is there."""
    world = Script([Turn(";")])
    ((sample, _),) = parts_of(Play(lambda: world, max_turn_tokens=4), [[ids("a") * 9]], (4,))
    assert sample.finish is Finish.length and episode_of(sample).turns == ((3, 0.0),)
    assert world.seen[0] == ("aaaa", False)
