"""Samples that the response limit cut off, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.registry import classes
from rlhf_lab.models.batching import minibatches, rewards_of
from rlhf_lab.training.truncated import without_truncated
from rlhf_lab.types.data import Objective
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Finish, Group
from tests.conftest import MakeConfig
from tests.support.golden import AWAY, POLICY, collated, loss_of, pessimistic, two_prompts
from tests.support.in_memory import result_of

SHORT = (
    *("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4", "algo=rloo"),
    "generator.max_new_tokens=4",
)
OBJECTIVES = {name: classes("algo")[name]().objective for name in classes("algo")}
COMPARING = [name for name, found in OBJECTIVES.items() if found is Objective.comparison]


def cut_off(group: Group, places: set[int]) -> Group:
    """The group with these samples ended by the limit."""
    return replace(
        group,
        samples=tuple(
            replace(sample, finish=Finish.length) if place in places else sample
            for place, sample in enumerate(group.samples)
        ),
    )


def test_a_truncated_sample_adds_no_loss_and_stays_in_the_baseline_of_others() -> None:
    algo = GRPO(deviation=Deviation.none, clip=0.2, kl_coef=0.0)
    groups = [cut_off(group, {1}) for group in two_prompts()]
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
    groups = [cut_off(group, {0}) for group in two_prompts()]
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


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_losses_that_compare_samples_refuse_it(make_config: MakeConfig, name: str) -> None:
    named = ["algo.teacher=somewhere"] if name == "distill" else []
    config = make_config(f"algo={name}", "run.group_size=2", "run.mask_truncated=true", *named)
    if name in COMPARING:
        with pytest.raises(UserError, match=rf"run.mask_truncated=true with algo={name}"):
            check(config)
    else:
        check(config)
