"""PPO against that of TRL 0.11.4, which has its loss and advantages in methods of their own."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.ma_ppo import MacroPPO
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.algos.reinforce import ReinforcePlusPlus
from rlhf_lab.types.data import Batch, PolicyOutput
from tests.oracle.batches import (
    SEEDS,
    Record,
    agree,
    graded,
    normal,
    policy_logps,
    ragged_batch,
    share_clipped,
)
from tests.oracle.trl_losses import trl

pytestmark = pytest.mark.oracle


@pytest.fixture
def trainer() -> Any:
    """The class of TRL's PPO trainer, or a visible skip."""
    return trl("trainer.ppo_trainer", "0.11.4").PPOTrainer


@pytest.fixture
def biased(monkeypatch: pytest.MonkeyPatch, trainer: Any) -> None:
    """TRL's own option for whitening by the variance over n, which it leaves at n - 1."""
    core = trl("core")
    monkeypatch.setattr(core, "masked_var", partial(core.masked_var, unbiased=False))


def stub(trainer: Any, algo: PPO) -> SimpleNamespace:
    """TRL's PPO trainer as far as its losses and advantages read it."""
    config = SimpleNamespace(
        cliprange=algo.clip,
        cliprange_value=algo.value_clip,
        vf_coef=algo.value_coef,
        gamma=algo.gamma,
        lam=algo.lam,
        kl_penalty="kl",
        ratio_threshold=math.inf,
        whiten_rewards=algo.whiten_rewards,
    )
    own = SimpleNamespace(config=config, kl_ctl=SimpleNamespace(value=algo.kl_coef))
    own._kl_penalty = partial(trainer._kl_penalty, own)
    return own


def trl_credit(
    trainer: Any, algo: PPO, reward_B: Tensor, batch: Batch, value_BT: Tensor
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of the response tokens, BT each, as TRL finds them from scores."""
    own, mask_BT = stub(trainer, algo), batch.mask_BT
    reward_BT, _, _ = trainer.compute_rewards(
        own, reward_B, batch.behavior_logp_BT, batch.reference_logp_BT, mask_BT
    )
    _, advantage_BT, return_BT = trainer.compute_advantages(own, value_BT, reward_BT, mask_BT)
    return advantage_BT * mask_BT, return_BT * mask_BT


def trl_loss(trainer: Any, algo: PPO, logp_BT: Tensor, value_BT: Tensor, batch: Batch) -> Tensor:
    """TRL's policy loss plus its weighted value loss."""
    policy, value, _ = trainer.loss(
        stub(trainer, algo),
        batch.proximal_logp_BT,
        batch.value_BT,
        torch.zeros(*batch.mask_BT.shape, 2),
        value_BT,
        logp_BT,
        batch.mask_BT,
        batch.credit_BT,
        batch.target_BT,
    )
    loss: Tensor = policy + value
    return loss


def scored(seed: int, ragged: bool = True) -> tuple[Batch, Tensor]:
    """A batch, and a reward for each row, P1."""
    batch = ragged_batch(PPO(), seed, num_groups=24, group_size=1, ragged=ragged)
    return batch, normal((24, 1), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("algo", [PPO(), MacroPPO(macro_tokens=1)], ids=lambda algo: algo.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_and_gradients_of_policy_and_values_are_those_of_trl(
    seed: int, algo: PPO | MacroPPO, trainer: Any, record_property: Record
) -> None:
    batch, _ = scored(seed)
    rng = torch.Generator().manual_seed(seed)
    # Advantages that differ from token to token, as those of GAE do.
    batch = replace(batch, credit_BT=normal(tuple(batch.mask_BT.shape), rng) * batch.mask_BT)
    logp_BT = policy_logps(batch, seed)
    value_BT = (batch.value_BT + 0.3 * normal(tuple(batch.mask_BT.shape), rng)).requires_grad_()
    output = algo.loss(PolicyOutput(logp_BT, torch.zeros_like(logp_BT), value_BT), batch)
    theirs = trl_loss(trainer, PPO(), logp_BT, value_BT, batch)
    agree(
        record_property,
        algo.name,
        graded(output.loss, logp_BT, value_BT),
        graded(theirs, logp_BT, value_BT),
    )
    assert 0 < share_clipped(output, batch) < 0.9


@pytest.mark.parametrize(
    "algo",
    [PPO(), PPO(gamma=0.9, lam=0.8, kl_coef=0.2), MacroPPO(macro_tokens=1)],
    ids=["default", "discounted", "macro"],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_advantages_and_returns_are_those_of_trl(
    seed: int, algo: PPO | MacroPPO, trainer: Any, biased: None, record_property: Record
) -> None:
    batch, reward_P1 = scored(seed)
    credit = algo.credit(reward_P1, batch)
    twin = PPO(gamma=algo.gamma, lam=algo.lam, kl_coef=algo.kl_coef)
    theirs = trl_credit(trainer, twin, reward_P1[:, 0], batch, batch.value_BT)
    assert credit.target_BT is not None
    agree(
        record_property,
        f"{algo.name} (advantages, returns)",
        [credit.value_BT, credit.target_BT],
        list(theirs),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_whitened_rewards_are_those_of_trl_where_nothing_is_padded(
    seed: int, trainer: Any, biased: None, record_property: Record
) -> None:
    # TRL 0.11.4 whitens pads too, and its advantages then count them; later versions do not.
    algo = PPO(whiten_rewards=True)
    batch, reward_P1 = scored(seed, ragged=False)
    credit = algo.credit(reward_P1, batch)
    theirs = trl_credit(trainer, algo, reward_P1[:, 0], batch, batch.value_BT)
    assert credit.target_BT is not None
    agree(
        record_property,
        "ppo (whitened rewards, equal lengths)",
        [credit.value_BT, credit.target_BT],
        list(theirs),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_trl_whitens_by_the_variance_over_n_less_one(
    seed: int, trainer: Any, record_property: Record
) -> None:
    batch, reward_P1 = scored(seed)
    ours_BT = PPO().credit(reward_P1, batch).value_BT
    theirs_BT, _ = trl_credit(trainer, PPO(), reward_P1[:, 0], batch, batch.value_BT)
    num_tokens = float(batch.mask_BT.sum())
    factor = math.sqrt(num_tokens / (num_tokens - 1))
    agree(record_property, "ppo (advantages, TRL as it is)", [ours_BT], [theirs_BT * factor])


@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_plus_plus_has_the_advantages_of_trl_ppo_without_values(
    seed: int, trainer: Any, biased: None, record_property: Record
) -> None:
    batch, reward_P1 = scored(seed)
    algo = ReinforcePlusPlus(kl_coef=0.1)
    ours_BT = algo.credit(reward_P1, batch).value_BT
    twin, nothing_BT = PPO(kl_coef=0.1, gamma=1.0, lam=1.0), torch.zeros_like(batch.value_BT)
    theirs_BT, _ = trl_credit(trainer, twin, reward_P1[:, 0], batch, nothing_BT)
    agree(record_property, "reinforce_plus_plus (advantages)", [ours_BT], [theirs_BT])


@pytest.mark.parametrize("kl", [0.5, 5.5, 6.0, 7.0, 30.0])
def test_the_adaptive_kl_coefficient_is_that_of_trl(
    kl: float, trainer: Any, record_property: Record
) -> None:
    controller = trl("trainer.utils").AdaptiveKLController(0.2, target=6.0, horizon=10_000)
    controller.update(kl, 256)
    ours = (
        PPO(kl_coef=0.2, kl_target=6.0, kl_horizon=10_000)
        .adapted({"kl/sampled_reference_k1": kl}, 256)
        .kl_coef
    )
    pair = (
        [torch.tensor(ours, dtype=torch.float64)],
        [torch.tensor(controller.value, dtype=torch.float64)],
    )
    agree(record_property, "ppo (adaptive KL)", *pair)
