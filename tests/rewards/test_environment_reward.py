"""`reward=environment`: sums over turns, rewards at turn ends, no score for references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.models.batching import collate
from rlhf_lab.rewards.data_rewards import EnvironmentReward, EnvironmentScorer
from rlhf_lab.rewards.model import as_tokens
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.data import Weights
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.support.environments import EOS, Play, Script, acted, player, prompt
from tests.support.given_actions import Given, said

FIRST = acted([5, 6, 7, 8], [(2, (9,))], turns=[(1, -0.25), (3, 1.0)])
SECOND = acted([5, 6], [], turns=[(1, 0.5)])
# A reference answer has no turns.
REFERENCE = Sample((5, EOS), (0.0, 0.0), 0, Finish.eos, "a")


def test_the_reward_of_an_episode_is_the_sum_over_its_turns() -> None:
    groups = [Group(prompt(0), (FIRST, SECOND)), Group(prompt(1), (SECOND,))]
    scorer = EnvironmentScorer()
    assert scorer.score(groups) == [(0.75, 0.5), (0.5,)]
    first, second = scorer.scored(groups)
    assert (first.prompt, first.samples) == (groups[0].prompt, groups[0].samples)
    assert first.rewards == (0.75, 0.5)
    assert first.step_rewards == (((1, -0.25), (3, 1.0)), ((1, 0.5),))
    assert (second.rewards, second.step_rewards) == ((0.5,), (((1, 0.5),),))


def test_each_turn_is_rewarded_where_it_ends() -> None:
    (scored,) = EnvironmentScorer().scored([Group(prompt(), (FIRST, SECOND))])
    batch = collate([scored], pad_id=0)
    assert batch.step_reward_BT.tolist() == [[0, -0.25, 0, 1], [0, 0.5, 0, 0]]
    sums_B = batch.step_reward_BT.sum(dim=1)
    assert torch.equal(sums_B, torch.tensor(scored.rewards))


def test_references_have_no_score() -> None:
    scorer = EnvironmentScorer()
    groups = [Group(prompt(), (REFERENCE,)), Group(prompt(1), (SECOND,))]
    assert scorer.score(groups) == [(), (0.5,)]
    reference, _ = scorer.scored(groups)
    assert (reference.rewards, reference.step_rewards) == ((), ())


def test_a_reward_model_reads_the_last_action_as_an_answer_to_the_prompt() -> None:
    assert (FIRST.answer, SECOND.answer, REFERENCE.answer) == ((7, 8), (5, 6), (5, EOS))
    group = Group(prompt(), (FIRST, REFERENCE))
    rows = [as_tokens(group, sample) for sample in group.samples]
    assert rows == [[*group.prompt.tokens, 7, 8], [*group.prompt.tokens, 5, EOS]]


def test_the_option_builds_a_scorer_of_steps(tmp_path: Path) -> None:
    task: Any = Play(lambda: Script([]))
    context = RewardContext(task, None, [], 1, 8, tmp_path)
    built = build_scorer(EnvironmentReward(), context)
    assert isinstance(built, EnvironmentScorer)
    (group,) = built.scored([Group(prompt(), (SECOND,))])
    assert group.rewards == (0.5,) and group.step_rewards


@pytest.mark.parametrize("scores_groups", [False, True])
def test_a_worker_scores_the_episodes_that_it_generated(scores_groups: bool) -> None:
    turns = [Turn("1", -0.5), Turn("", 2.0, is_done=True)]
    given = Given([[said("a"), said("ab")], [said("bab"), said("b")]])
    made = player(Play(lambda: Script(turns)), given)
    worker = RolloutWorker(made, EnvironmentScorer(), is_model=False, clock=lambda: 0.0)
    whole = Chunk(0, 0, (prompt(),), 2, scores_groups=scores_groups)
    rollout = worker.run(Weights(3, {}), whole)
    (group,) = rollout.groups
    assert group.rewards == (1.5, 1.5)
    assert group.step_rewards == (((1, -0.5), (4, 2.0)), ((1, -0.5), (3, 2.0)))
    assert rollout.segments == ((0, 3),)
    assert (rollout.tokens["generated_tokens"], rollout.tokens["observed_tokens"]) == (9, 2)
    assert rollout.tokens["scored_tokens"] == 0
