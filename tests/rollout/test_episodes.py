"""Episodes: turn by turn the same samples as without turns, contexts of the very tokens that were
sampled, and log-probs of the whole text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from rlhf_lab.models.options import scratch
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.support.environments import (
    EOS,
    TINY,
    Echo,
    Pieces,
    Play,
    Script,
    chunk,
    ids,
    player,
    prompt,
    tiny_model,
    weights,
    writer,
)
from tests.support.given_actions import Given, said

ONE_TURN = Play(lambda: Script([Turn(reward=1.0, is_done=True)]), max_turn_tokens=8)
ECHO = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)


def samples(groups: Sequence[Group]) -> list[Sample]:
    return [sample for group in groups for sample in group.samples]


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
@pytest.mark.parametrize(("size", "greedy"), [(1, False), (3, False), (3, True)])
def test_an_episode_of_one_action_has_the_bits_of_a_plain_sample(
    decode: str, size: int, greedy: bool
) -> None:
    wanted = chunk(size=size, greedy=greedy)
    plain = writer(8, decode).generate(weights(), wanted)
    episodes = player(ONE_TURN, writer(8, decode)).generate(weights(), wanted)
    assert {sample.finish for sample in samples(plain)} == {Finish.eos, Finish.length}
    bare = [replace(sample, episode=None) for sample in samples(episodes)]
    assert bare == samples(plain)


def test_a_turn_that_is_shorter_than_a_response_is_a_plain_sample_of_its_length() -> None:
    plain = writer(3).generate(weights(), chunk())
    short = replace(ONE_TURN, max_turn_tokens=3)
    episodes = samples(player(short, writer(8)).generate(weights(), chunk()))
    assert [replace(sample, episode=None) for sample in episodes] == samples(plain)


@pytest.mark.parametrize("decode", ["lean", "transformers"])
def test_the_policy_reads_the_tokens_that_it_wrote_and_those_of_the_observation(
    decode: str,
) -> None:
    """`ab` that was written as two tokens stays two, although its text is one."""
    made = writer(24, decode)
    groups = player(ECHO, made).generate(weights(), chunk(12))
    merged = 0
    for group in groups:
        for sample in group.samples:
            assert sample.episode is not None
            turns = [end + 1 for end, _ in sample.episode.turns]
            start = 0
            context = list(group.prompt.tokens)
            for end in turns[:-1]:
                own = sample.tokens[start:end]
                text = Pieces().decode(own, skip_special_tokens=True)
                merged += ids(text) != list(own[:-1])
                context += [*own, *ids(text[::-1] + ";")]
                start = end
            everything = (*context, *sample.tokens[start:])
            assert (*group.prompt.tokens, *sample.all_tokens) == everything
    assert merged > 3
    # No context is read a second time.
    assert [len(rows.texts) for rows in made.rows] == [12]


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
@pytest.mark.parametrize("first", ["", "2;"])
def test_log_probs_are_those_of_a_forward_pass_over_the_whole_text(decode: str, first: str) -> None:
    class Showing(Echo):
        def reset(self, *given: object) -> str:
            super().reset(*given)  # type: ignore[arg-type]
            return first

    groups = player(replace(ECHO, make=Showing), writer(24, decode)).generate(weights(), chunk())
    assert {len(s.episode.turns) for s in samples(groups) if s.episode} == {1, 2, 3}
    for group in groups:
        for sample in group.samples:
            whole = [*group.prompt.tokens, *sample.all_tokens]
            with torch.inference_mode():
                logits = tiny_model()(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
            place, expected = len(group.prompt.tokens), []
            for is_observed, tokens in sample.pieces():
                for token in tokens:
                    if not is_observed:
                        expected.append(float(logits[place - 1, token]))
                    place += 1
            assert sample.logps == pytest.approx(expected, abs=2e-5)


def test_samples_are_a_function_of_weights_and_chunk() -> None:
    made = player(ECHO, writer())
    first = made.generate(weights(), chunk())
    other = chunk(4, greedy=True)
    before = player(ECHO, writer()).generate(weights(0.5), other)
    assert made.generate(weights(0.5), other) == before
    assert made.generate(weights(), chunk()) == first
    renamed = tuple(replace(one, id=one.id + 10) for one in chunk().prompts)
    assert made.generate(weights(), replace(chunk(), prompts=renamed)) != first


def test_environments_get_a_seed_of_their_prompt_and_sample() -> None:
    task = Play(lambda: Echo(), max_turns=1)
    for group in player(task, writer()).generate(weights(), chunk()):
        for number, sample in enumerate(group.samples):
            seed = stable_hash(11, group.prompt.id, number)
            assert sample.episode is not None
            assert sample.episode.reward == len(sample.text) + (seed % 7) / 10


@pytest.mark.parametrize("decode", ["lean", "transformers"])
def test_what_is_observed_changes_no_random_number(decode: str) -> None:
    """A policy that is deaf to all that it reads writes the same, whatever stands between."""
    deaf = scratch(TINY, Pieces(), seed=9)
    for parameter in deaf.parameters():
        parameter.data.zero_()
    silent = Weights(0, {name: p.detach() for name, p in deaf.named_parameters()})
    written = []
    for answer in ("", "1", "2;1a"):
        turns = [Turn(answer), Turn(answer), Turn(is_done=True)]
        task = Play(functools.partial(Script, turns))
        made = player(task, writer(decode=decode, model=deaf)).generate(silent, chunk())
        written.append([sample.tokens for sample in samples(made)])
    assert written[0] == written[1] == written[2]


def test_the_random_numbers_of_a_turn_go_on_where_the_last_one_ended() -> None:
    """Two samples, whose first actions have two and three tokens of seven."""
    task = Play(lambda: Script([Turn("1"), Turn(is_done=True)]), max_turn_tokens=5)
    given = Given([[said("a"), said("bab")], [said("b"), said("b")]], length=7)
    whole = Chunk(0, 0, (prompt(8),), 2, greedy=True, stop_at=1)
    (group,) = player(task, given).generate(Weights(0, {}), whole)
    player(task, given).generate(Weights(0, {}), replace(whole, begun=group.samples, stop_at=2))
    first, second = (rows.uniform_BT for rows in given.rows)
    own = [torch.from_numpy(uniforms(5, 8, number, 7)) for number in range(2)]
    assert torch.equal(first, torch.stack(own))
    # `bab` is the tokens b and ab: with its end token, three. Five of seven tokens are left, or
    # four; what a row may not write has no number.
    assert torch.equal(second[0], own[0][2:7])
    assert torch.equal(second[1], torch.cat([own[1][3:7], torch.zeros(1, dtype=torch.float64)]))
    # As long as nothing stands behind the prompt, both samples read it together.
    assert [rows.repeats for rows in given.rows] == [2, 1]
    assert [rows.is_greedy_B.tolist() for rows in given.rows if rows.is_greedy_B is not None] == [
        [False, True],
        [False, True],
    ]


def test_every_sample_ends_in_its_own_time() -> None:
    class Once(Echo):
        """Ends at once for samples that say `a`."""

        def step(self, action: str, finished: bool) -> Turn:
            return Turn("1", is_done=action == "a")

    given = Given([[said("a"), said("b"), said("c")], [said("a"), said("d")], [said("a")]])
    group, *_ = player(Play(Once), given).generate(
        Weights(3, {}), Chunk(0, 0, (prompt(),), 3, greedy=True)
    )
    assert [sample.text for sample in group.samples] == ["a", "a", "a"]
    assert [sample.tokens for sample in group.samples] == [
        (2, EOS),
        (3, EOS, 2, EOS),
        (4, EOS, 5, EOS, 2, EOS),
    ]
    (rows,) = given.rows
    assert rows.is_greedy_B is not None
    assert (len(rows.texts), rows.is_greedy_B.tolist()) == (1, [False, False, True])
    assert [sample.version for sample in group.samples] == [3, 3, 3]
