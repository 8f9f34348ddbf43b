"""Episodes in the queue of a checkpoint."""

from __future__ import annotations

import json
from typing import Any

from rlhf_lab.rewards.data_rewards import EnvironmentScorer
from rlhf_lab.training.checkpoint_files import buffer_row, group_row, read_group, stored_group
from rlhf_lab.training.replay import StoredGroup
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.support.environments import Echo, Play, acted, chunk, player, prompt, weights, writer


def through_json(row: Any) -> Any:
    return json.loads(json.dumps(row))


def generated() -> tuple[Chunk, list[Group]]:
    """Groups whose samples have one to three turns, and their chunk."""
    task = Play(Echo, max_turn_tokens=12, max_observation_tokens=40)
    groups = player(task, writer(24)).generate(weights(), chunk())
    return chunk(), EnvironmentScorer().scored(groups)


def test_groups_of_episodes_come_back_as_they_were() -> None:
    _, groups = generated()
    turns = {len(s.episode.turns) for g in groups for s in g.samples if s.episode}
    assert turns == {1, 2, 3}
    for group in groups:
        again = read_group(group.prompt, through_json(group_row(group)))
        assert again == group
        assert [sample.all_tokens for sample in again.samples] == [
            sample.all_tokens for sample in group.samples
        ]
        hash(again.samples[0].episode.observed if again.samples[0].episode else None)


def test_groups_of_earlier_rounds_come_back_too() -> None:
    whole, groups = generated()
    stored = StoredGroup(number=2, place=3, round=1, uses=1, group=groups[3])
    assert stored_group(through_json(buffer_row(stored)), lambda number: whole) == stored


def test_a_row_of_before_there_were_episodes_has_none() -> None:
    plain = Sample((5, 1), (-0.5, -1.0), 3, Finish.eos, "a", versions=(3, 4))
    group = Group(prompt(), (plain,), (1.0,))
    row = through_json(group_row(group))
    assert read_group(prompt(), row) == group
    assert row["samples"][0].pop("episode") is None
    assert read_group(prompt(), row) == group


def test_an_episode_in_which_nothing_was_observed_is_still_one() -> None:
    group = Group(prompt(), (acted([5, 1], [], turns=[(1, 0.5)]),), (0.5,))
    (sample,) = read_group(prompt(), through_json(group_row(group))).samples
    assert sample.episode == group.samples[0].episode is not None
