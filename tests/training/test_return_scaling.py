"""DreamerV3's scale of returns against numbers worked out by hand, and who may have it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlhf_lab.algos.ppo import PPO
from rlhf_lab.algos.rloo import RLOO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.training.round_credit import ReturnRange
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.golden import collated

STANDARDISING = (
    *("ppo", "ma_ppo", "sao", "mdpo", "reinforce_plus_plus", "grpo", "dapo", "gspo", "cispo"),
    *("lite_ppo", "online_dpo", "online_ipo", "online_slic", "best_of_n", "codpo", "dpo"),
    "distill",
)


def test_the_range_of_returns_by_hand() -> None:
    batch = collated()
    # of 0, 1, 2, 5 the 5th percentile lies at place 0.15, the 95th at 2.85: 0.15 and 4.55
    reward_PG = torch.tensor([[0.0, 5.0], [2.0, 1.0]])
    credit = RLOO(kl_coef=0.0).credit(reward_PG, batch)
    first = ReturnRange(decay=0.5).after(credit, reward_PG, batch)
    assert first.average == pytest.approx(4.4)
    scaled = first.scaled(credit)
    assert torch.allclose(scaled.value_BT, credit.value_BT / 4.4)
    assert torch.equal(scaled.keep_B, credit.keep_B)
    # the range of the next round is 0.1 of that: 0.5 * 4.4 + 0.5 * 0.44
    second = first.after(credit, reward_PG / 10, batch)
    assert second.average == pytest.approx(2.42)


def test_small_returns_are_not_enlarged_and_returns_of_ppo_are_its_targets() -> None:
    batch = collated()
    reward_PG = torch.tensor([[0.0, 0.5], [0.2, 0.1]])
    credit = RLOO(kl_coef=0.0).credit(reward_PG, batch)
    small = ReturnRange(decay=0.9).after(credit, reward_PG, batch)
    assert torch.equal(small.scaled(credit).value_BT, credit.value_BT)
    credit = PPO(whiten_advantages=False).credit(reward_PG, batch)
    assert credit.target_BT is not None
    targets = credit.target_BT[batch.mask_BT > 0].double()
    low, high = (float(torch.quantile(targets, q)) for q in (0.05, 0.95))
    after = ReturnRange(decay=0.9).after(credit, reward_PG, batch)
    assert after.average == pytest.approx(high - low)
    assert after.scaled(credit).target_BT is credit.target_BT


@pytest.mark.parametrize("name", classes("algo"))
def test_only_credit_that_grows_with_rewards_is_scaled(name: str) -> None:
    algo = classes("algo")[name]()
    assert algo.needs.scales_with_reward == (name not in STANDARDISING)
    if hasattr(algo, "whiten_advantages"):
        assert replace(algo, whiten_advantages=False).needs.scales_with_reward


def test_scaling_of_standardised_credit_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"run.return_scaling=percentile with algo=grpo"):
        check(make_config("algo=grpo", "run.return_scaling=percentile"))
