"""Samples that the response limit cut off, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.algos.pairs import BestOfN, OnlineDPO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.rules.algorithm import check_truncated
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.training.round_credit import credit_among_ended, without_truncated
from rlhf_lab.types.data import Objective
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group
from tests.conftest import MakeConfig
from tests.support.examples import group
from tests.support.golden import AWAY, POLICY, collated, loss_of, pessimistic, two_prompts
from tests.support.in_memory import result_of

SHORT = (
    *("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4", "algo=rloo"),
    "generator.max_new_tokens=4",
)
OBJECTIVES = {name: classes("algo")[name]().objective for name in classes("algo")}
COMPARING = [name for name, found in OBJECTIVES.items() if found is Objective.comparison]
# Their losses compare all samples of a group, and not a few that they choose.
COMPARING_ALL = {"copg", "kimi", "tba"}
CHOOSING = sorted({*COMPARING} - COMPARING_ALL)


def cut_off(whole: Group, places: set[int]) -> Group:
    """The group with these samples ended by the limit."""
    return replace(
        whole,
        samples=tuple(
            replace(sample, finish=Finish.length) if place in places else sample
            for place, sample in enumerate(whole.samples)
        ),
    )


def test_a_truncated_sample_adds_no_loss_and_stays_in_the_baseline_of_others() -> None:
    algo = GRPO(deviation=Deviation.none, clip=0.2, kl_coef=0.0)
    groups = [cut_off(one, {1}) for one in two_prompts()]
    batch = collated()
    whole = algo.credit(rewards_of(groups), batch)
    credit, metrics = without_truncated(whole, groups)
    assert credit.keep_B.tolist() == [True, False, True, False]
    assert torch.equal(credit.value_BT, whole.value_BT)
    assert metrics == {"sample/masked": 0.5}
    (part,) = minibatches(batch, credit, algo.reduction, 1, torch.arange(2))
    # rewards (1, 3) and (2, 0.5): rows 0 and 2 have -1 and 0.75, of means with their neighbours
    terms = [
        sum(pessimistic(math.exp(away), advantage, 0.2, 0.2) for away in AWAY[row]) / len(AWAY[row])
        for row, advantage in ((0, -1.0), (2, 0.75))
    ]
    assert loss_of(algo, [POLICY[0], POLICY[2]], part) == pytest.approx(-sum(terms) / 2, abs=1e-6)


def test_a_sample_that_the_algorithm_leaves_out_is_not_counted_as_masked() -> None:
    groups = [cut_off(one, {0}) for one in two_prompts()]
    whole = GRPO().credit(rewards_of(groups), collated())
    whole = replace(whole, keep_B=torch.tensor([False, False, True, True]))
    credit, metrics = without_truncated(whole, groups)
    assert credit.keep_B.tolist() == [False, False, False, True]
    assert metrics == {"sample/masked": 0.25}


def test_a_run_masks_what_did_not_end_and_accounts_for_its_tokens(make_config: MakeConfig) -> None:
    rows = result_of(make_config(*SHORT, "run.mask_truncated=true"))[0]
    assert any(row["sample/masked"] > 0 for row in rows)
    for row in rows:
        assert row["sample/masked"] == pytest.approx(1 - row["sample/eos_rate"])
        assert row["rows_kept"] == pytest.approx(row["sample/eos_rate"])
    assert all("sample/masked" not in row for row in result_of(make_config(*SHORT))[0])


def four_prompts() -> list[Group]:
    """Of four samples each, of which none to three are cut."""
    return [
        cut_off(group(number, [[-1.0]] * 4, rewards), places)
        for number, (rewards, places) in enumerate(
            (
                ([1.0, 3.0, 2.0, 0.0], {1}),
                ([5.0, 1.0, 0.5, 2.0], {0, 2, 3}),
                ([1.0, 2.0, 4.0, 3.0], set()),
                ([1.0, 1.0, 9.0, 0.0], {2, 3}),
            )
        )
    ]


def test_pairs_are_chosen_among_samples_that_ended() -> None:
    """Without the cut ones the rewards are (1, 2, 0), (1), (1, 2, 4, 3) and (1, 1): two pairs, a
    group with nothing to compare, and a tie."""
    algo, groups = OnlineDPO(beta=0.1), four_prompts()
    batch = collate(groups, 0)
    credit, metrics = credit_among_ended(algo, groups, batch)
    signs = [0, 0, 1, -1, *[0] * 4, -1, 0, 1, 0, *[0] * 4]
    assert credit.value_BT.squeeze(1).tolist() == signs
    assert credit.keep_B.tolist() == [sign != 0 for sign in signs]
    assert metrics == {"sample/masked": 6 / 16, "sample/groups_masked": 1 / 4}
    (part,) = minibatches(batch, credit, algo.reduction, 1, torch.arange(4))
    # Log-ratios of the pairs differ by 1.0 and by 0.4 nats.
    loss = loss_of(algo, [[-0.5], [-1.5], [-0.8], [-0.4]], part)
    expected = sum(math.log(1 + math.exp(-0.1 * gap)) for gap in (1.0, 0.4)) / 2
    assert loss == pytest.approx(expected, abs=1e-6)


def test_the_best_of_samples_that_ended_is_trained_on() -> None:
    groups = four_prompts()
    credit, _ = credit_among_ended(BestOfN(), groups, collate(groups, 0))
    assert torch.where(credit.keep_B)[0].tolist() == [2, 8 + 2]


@pytest.mark.parametrize("name", CHOOSING)
def test_where_no_sample_is_cut_credit_is_as_without_it(name: str) -> None:
    algo, groups, batch = classes("algo")[name](), two_prompts(), collated()
    credit, metrics = credit_among_ended(algo, groups, batch)
    whole = algo.credit(rewards_of(groups), batch)
    assert torch.equal(credit.value_BT, whole.value_BT)
    assert torch.equal(credit.keep_B, whole.keep_B)
    assert metrics == {"sample/masked": 0.0, "sample/groups_masked": 0.0}


LATE = (
    *("task=ask_nano", "task.ask_rate=0.9", "sft.steps=60", "run.updates=6", "run.group_size=4"),
    *("eval=none", "eval.snapshots=0", "algo=online_dpo", "run.mask_truncated=true"),
    *("episodes.tool_seconds=20", "episodes.tool_sigma=1.5"),
)


def test_a_run_compares_the_episodes_that_were_not_late(make_config: MakeConfig) -> None:
    rows = result_of(make_config(*LATE, "episodes.tool_deadline=20"))[0]
    assert any(0 < row["sample/groups_masked"] < 1 and row["rows_kept"] > 0 for row in rows)
    for row in rows:
        assert row["sample/masked"] == pytest.approx(1 - row["sample/eos_rate"])
        assert row["episode/late"] <= row["sample/masked"] < 1
        assert row["rows_kept"] <= (1 - row["sample/groups_masked"]) / 2
    last = rows[-1]
    assert last["total/kept_tokens"] + last["total/tied_tokens"] == last["total/generated_tokens"]


def test_a_round_without_pairs_makes_empty_updates() -> None:
    """Which still count as updates, of no row."""
    algo, batch = OnlineDPO(), collated()
    groups = [cut_off(one, {0}) for one in two_prompts()]
    credit, metrics = credit_among_ended(algo, groups, batch)
    parts = list(minibatches(batch, credit, algo.reduction, 2, torch.arange(2)))
    assert [len(part) for part in parts] == [0, 0]
    assert metrics == {"sample/masked": 0.5, "sample/groups_masked": 1.0}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_losses_that_compare_all_samples_refuse_it(make_config: MakeConfig, name: str) -> None:
    named = ["algo.teacher=somewhere"] if name == "distill" else []
    config = make_config(f"algo={name}", "run.group_size=2", "run.mask_truncated=true", *named)
    if name in COMPARING_ALL:
        with pytest.raises(UserError, match=rf"run.mask_truncated=true with algo={name}"):
            check_truncated(config)
    else:
        check_truncated(config)


def test_all_pairs_of_a_group_refuse_it(make_config: MakeConfig) -> None:
    config = make_config("algo=online_dpo", "algo.pairs=all", "run.mask_truncated=true")
    with pytest.raises(UserError, match=r"compares all samples .*online_dpo with algo.pairs=best"):
        check(config)
