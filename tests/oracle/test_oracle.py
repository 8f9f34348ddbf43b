"""Losses on ratios and likelihoods, and advantages, against TRL's code in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlhf_lab.algos.a_lol import ALoL, RatioOf
from rlhf_lab.algos.cispo import CISPO
from rlhf_lab.algos.dapo import DAPO
from rlhf_lab.algos.grpo import GRPO, DrGRPO, LitePPO
from rlhf_lab.algos.gspo import GSPO
from rlhf_lab.algos.reinforce import REINFORCE, ReMax
from rlhf_lab.algos.rloo import RLOO, ProximalRLOO
from rlhf_lab.types.data import PolicyOutput
from rlhf_lab.types.protocols import Algorithm
from tests.oracle.batches import (
    LIMIT,
    SEEDS,
    Record,
    agree,
    compare,
    first_word,
    graded,
    normal,
    policy_logps,
    ragged_batch,
    share_clipped,
)
from tests.oracle.trl_losses import (
    grpo_advantages,
    grpo_loss,
    grpo_loss_and_metrics,
    rloo_advantages,
    rloo_loss,
    trl,
)

pytestmark = [pytest.mark.oracle, pytest.mark.parametrize("seed", SEEDS)]

# Ours, and the options with which TRL's GRPOTrainer computes the same.
CLIPPED_RATIO: list[tuple[str, Algorithm, dict[str, Any]]] = [
    ("grpo", GRPO(), {"beta": 0.04}),
    ("grpo without KL", GRPO(clip=0.1, kl_coef=0.0), {"epsilon_low": 0.1, "epsilon_high": 0.1}),
    ("dr_grpo", DrGRPO(), {"loss_type": "dr_grpo"}),
    ("dr_grpo with KL", DrGRPO(kl_coef=0.04), {"loss_type": "dr_grpo", "beta": 0.04}),
    ("dapo", DAPO(), {"loss_type": "dapo", "epsilon_high": 0.28}),
    ("lite_ppo", LitePPO(), {"loss_type": "bnpo"}),
    (
        "gspo",
        GSPO(),
        {
            "importance_sampling_level": "sequence",
            "epsilon_low": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
]


@pytest.mark.parametrize(("name", "algo", "options"), CLIPPED_RATIO, ids=first_word)
def test_clipped_ratio_losses_are_those_of_trl(
    seed: int,
    name: str,
    algo: Algorithm,
    options: dict[str, Any],
    record_property: Record,
) -> None:
    # GSPO's bounds are so near to one that rows stay within them only next to the proximal policy.
    spread = 1e-3 if name == "gspo" else 0.3
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    logp_BT = policy_logps(batch, seed, spread)
    output = compare(
        record_property, name, algo, batch, logp_BT, lambda logp: grpo_loss(logp, batch, **options)
    )
    assert 0 < share_clipped(output, batch) < 0.9


@pytest.mark.parametrize(("name", "algo", "options"), CLIPPED_RATIO[:-1], ids=first_word)
def test_the_share_of_clipped_tokens_is_what_trl_logs(
    seed: int, name: str, algo: Algorithm, options: dict[str, Any], record_property: Record
) -> None:
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    logp_BT = policy_logps(batch, seed)
    output = algo.loss(PolicyOutput(logp_BT, torch.zeros_like(logp_BT)), batch)
    _, metrics = grpo_loss_and_metrics(logp_BT, batch, **options)
    assert share_clipped(output, batch) == pytest.approx(metrics["clip_ratio/region_mean"][0], 1e-6)


def test_cispo_is_that_of_trl_whose_bound_is_the_weight_itself(
    seed: int, record_property: Record
) -> None:
    algo = CISPO(clip_high=0.3)
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    output = compare(
        record_property,
        "cispo",
        algo,
        batch,
        policy_logps(batch, seed),
        lambda logp: grpo_loss(logp, batch, loss_type="cispo", epsilon_high=1.3),
    )
    assert 0 < float(output.metrics["cispo/weights_clipped"]) < 0.9


def test_a_lol_of_tokens_is_trl_cispo_summed_over_responses(
    seed: int, record_property: Record
) -> None:
    algo = ALoL(clip=1.0, ratio_of=RatioOf.token)
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    # CISPO divides by the number of tokens, A-LoL by that of responses.
    tokens_per_row = float(batch.mask_BT.sum()) / len(batch)
    compare(
        record_property,
        "a_lol (ratio_of=token)",
        algo,
        batch,
        policy_logps(batch, seed, spread=0.8),
        lambda logp: tokens_per_row * grpo_loss(logp, batch, loss_type="cispo", epsilon_high=2.0),
    )


def test_proximal_rloo_is_trl_rloo(seed: int, record_property: Record) -> None:
    algo = ProximalRLOO()
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    output = compare(
        record_property,
        "proximal_rloo",
        algo,
        batch,
        policy_logps(batch, seed, spread=0.1),
        lambda logp: rloo_loss(logp, batch, batch.proximal_logp_BT, clip=0.2),
    )
    assert 0 < share_clipped(output, batch) < 0.9


@pytest.mark.parametrize("algo", [RLOO(), REINFORCE(), ReMax()], ids=lambda algo: algo.name)
def test_plain_likelihood_has_the_gradient_of_trl_rloo_on_its_own_samples(
    seed: int, algo: Algorithm, record_property: Record
) -> None:
    # Where the ratio is one, the gradient of ratio times advantage is that of the log-prob's.
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    logp_BT = policy_logps(batch, seed)
    ours = algo.loss(PolicyOutput(logp_BT, torch.zeros_like(logp_BT)), batch).loss
    theirs = rloo_loss(logp_BT, batch, logp_BT.detach(), clip=0.2)
    name = f"{getattr(algo, 'name', '')} (gradient)"
    agree(record_property, name, graded(ours, logp_BT)[1:], graded(theirs, logp_BT)[1:])


@pytest.mark.parametrize(
    ("algo", "scale"),
    [
        (GRPO(), "group"),
        (GSPO(), "group"),
        (CISPO(), "group"),
        (DAPO(overlong_share=0.0), "group"),
        (LitePPO(), "batch"),
        (DrGRPO(), "none"),
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_group_advantages_are_those_of_trl(
    seed: int, algo: Algorithm, scale: str, record_property: Record
) -> None:
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    reward_B = normal((24,), torch.Generator().manual_seed(seed))
    ours_B = algo.credit(reward_B.view(6, 4), batch).value_BT[:, 0]
    name = f"{getattr(algo, 'name', '')} (advantages)"
    agree(record_property, name, [ours_B], [grpo_advantages(reward_B, batch, 4, scale)])


def test_dapo_punishes_length_as_trl_does(seed: int, record_property: Record) -> None:
    algo = DAPO(overlong_share=0.5)
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    reward_B = normal((24,), torch.Generator().manual_seed(seed))
    ours_B = algo.credit(reward_B.view(6, 4), batch).value_BT[:, 0]
    punish = trl("rewards").get_soft_overlong_punishment(LIMIT, LIMIT // 2)
    lengths = batch.mask_BT.sum(dim=1).int().tolist()
    punished_B = reward_B + torch.tensor(punish([[0] * length for length in lengths]))
    theirs_B = grpo_advantages(punished_B, batch, 4, "group")
    agree(record_property, "dapo (advantages, overlong)", [ours_B], [theirs_B])


@pytest.mark.parametrize(
    "algo", [RLOO(kl_coef=0.05), ProximalRLOO(kl_coef=0.05)], ids=lambda algo: algo.name
)
def test_leave_one_out_advantages_with_kl_are_those_of_trl(
    seed: int, algo: Algorithm, record_property: Record
) -> None:
    batch = ragged_batch(algo, seed, num_groups=6, group_size=4)
    reward_B = normal((24,), torch.Generator().manual_seed(seed))
    ours_B = algo.credit(reward_B.view(6, 4), batch).value_BT[:, 0]
    name = f"{getattr(algo, 'name', '')} (advantages)"
    agree(record_property, name, [ours_B], [rloo_advantages(reward_B, batch, 4, beta=0.05)])
