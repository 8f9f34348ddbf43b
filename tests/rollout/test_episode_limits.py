"""Where episodes end, what the environment is told of it, and how their tokens are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlhf_lab.rollout.worker import written_tokens
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Episode, Finish, Group, Sample
from tests.support.environments import EOS, Play, Script, ids, prompt
from tests.support.given_actions import played, said

GO_ON, DONE = Turn("1"), Turn(is_done=True)
Calls = Sequence[Sequence[Sequence[int]]]


def episode_of(sample: Sample) -> Episode:
    assert sample.episode is not None
    return sample.episode


def test_an_episode_by_hand() -> None:
    turns = [
        Turn("1;2", -0.5, info={"calls": 1, "errors": 1}),
        Turn(""),
        Turn("not read", 2.0, True, {"calls": 2}),
    ]
    world = Script(turns, first="2")
    (sample,) = played(Play(lambda: world), [[said("ab")], [said("c")], [[2, 3, EOS]]]).samples
    ab, c, one, two, semicolon = (*ids("ab"), *ids("c"), *ids("1"), *ids("2"), *ids(";"))
    assert sample.tokens == (ab, EOS, c, EOS, 2, 3, EOS)
    assert sample.logps == (-1.0, -2.0, -1.0, -2.0, -1.0, -2.0, -3.0)
    assert (sample.text, sample.finish, sample.versions) == ("ab", Finish.eos, ())
    assert sample.all_tokens == (two, ab, EOS, one, semicolon, two, c, EOS, 2, 3, EOS)
    assert [is_observed for is_observed, _ in sample.pieces()] == [True, False, True, False]
    # The 2 behind the prompt, and the first answer; the second one is empty.
    assert episode_of(sample) == Episode(
        observed=((0, (two,)), (2, (one, semicolon, two))),
        turns=((1, -0.5), (3, 0.0), (6, 2.0)),
        transcript=(
            ("environment", "2"),
            ("policy", "ab"),
            ("environment", "1;2"),
            ("policy", "c"),
            ("policy", "ab"),
        ),
        info={"calls": 3.0, "errors": 1.0},
        is_done=True,
        read_tokens=1 + 3,
    )
    assert episode_of(sample).reward == 1.5
    # Once while it was generated, and once to see that it can be repeated.
    assert world.seen == [("ab", True), ("c", True), ("ab", True)] * 2


@pytest.mark.parametrize(
    ("task", "length", "calls", "seen", "lengths"),
    [
        # Four tokens a turn: an action of four with its end token, and one that is cut.
        ({"max_turn_tokens": 4}, 20, [[said("aba;")]], [("aba;", True), ("12", True)], [3, 3]),
        ({"max_turn_tokens": 3}, 20, [[said("1212")]], [("121", False)], [3]),
        # Three of four tokens are left; then one, which is no end token.
        ({}, 5, [[said("12")]], [("12", True), ("12", False)], [3, 2]),
        ({}, 4, [[said("12")]], [("12", True), ("1", False)], [3, 1]),
        # None is left.
        ({}, 3, [[said("12")]], [("12", True)], [3]),
        ({"max_turns": 1}, 20, [[said("12")]], [("12", True)], [3]),
        ({"max_turns": 2}, 20, [[said("12")]], [("12", True), ("12", True)], [3, 3]),
    ],
)
def test_a_limit_ends_an_episode_that_its_environment_would_go_on_with(
    task: dict[str, int],
    length: int,
    calls: Calls,
    seen: list[tuple[str, bool]],
    lengths: list[int],
) -> None:
    world = Script([GO_ON, GO_ON])
    options: dict[str, Any] = {"max_turns": 2, "max_turn_tokens": 9} | task
    limited = Play(lambda: world, **options)
    (sample,) = played(limited, [*calls, [said("12")]], length=length).samples
    assert world.seen == seen * 2
    episode = episode_of(sample)
    ends = [end + 1 for end, _ in episode.turns]
    assert [end - start for start, end in zip([0, *ends], ends, strict=False)] == lengths
    assert sample.finish is Finish.length
    assert not episode.is_done
    # What the last turn shows is read by nobody.
    assert len(episode.observed) == len(lengths) - 1


def test_an_environment_that_ends_with_a_cut_action_ends_by_length() -> None:
    (sample,) = played(Play(lambda: Script([DONE]), max_turn_tokens=2), [[said("1212")]]).samples
    assert (sample.finish, sample.text, episode_of(sample).is_done) == (Finish.length, "12", True)


def test_a_row_with_less_room_than_its_neighbour_is_cut_at_its_own_limit() -> None:
    """Of six tokens the first sample has spent five, and the second two."""
    task = Play(lambda: Script([GO_ON, DONE]), max_turn_tokens=5)
    calls = [[said("1212"), said("1")], [said("21"), said("21")]]
    first, second = played(task, calls, size=2, length=6).samples
    assert (first.text, first.finish, len(first.tokens)) == ("2", Finish.length, 6)
    assert (second.text, second.finish, len(second.tokens)) == ("21", Finish.eos, 5)
    assert first.logps[-1] == -1.0


def counts(group: Group, size: int) -> dict[str, int]:
    return written_tokens(Chunk(0, 0, (prompt(),), size), [group])


TWO_TURNS = [[said("1"), said("2")], [said("12"), said("21")]]


def test_tokens_without_an_observation_before_the_first_turn() -> None:
    """A prompt of one token is read once for two samples; then each reads three of the
    observation."""
    world = Play(lambda: Script([Turn("1;2"), DONE]))
    assert len(prompt().tokens) == 1
    assert counts(played(world, TWO_TURNS, size=2), 2) == {
        "prefill_tokens": 1 + 2 * 3,
        "generated_tokens": 2 * (2 + 3),
        "observed_tokens": 2 * 3,
        "offline_tokens": 0,
    }


def test_tokens_with_an_observation_before_the_first_turn() -> None:
    """Each sample reads prompt and observation by itself."""
    world = Play(lambda: Script([Turn("1;2"), DONE], first="21"))
    assert counts(played(world, TWO_TURNS, size=2), 2) == {
        "prefill_tokens": 2 * (1 + 2) + 2 * 3,
        "generated_tokens": 2 * (2 + 3),
        "observed_tokens": 2 * (2 + 3),
        "offline_tokens": 0,
    }


def test_tokens_of_samples_that_end_at_once() -> None:
    group = played(Play(lambda: Script([DONE])), [[said("1"), said("2")]], size=2)
    assert counts(group, 2) == {
        "prefill_tokens": 1,
        "generated_tokens": 4,
        "observed_tokens": 0,
        "offline_tokens": 0,
    }


def test_without_episodes_nothing_is_said_of_observations() -> None:
    sample = Sample((5, EOS), (-1.0, -1.0), 0, Finish.eos, "")
    assert "observed_tokens" not in counts(Group(prompt(), (sample,)), 1)
