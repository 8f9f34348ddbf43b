"""Preference losses against TRL's code in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.pairs import DPO, OnlineDPO, OnlineIPO, OnlineSLiC, PairLoss, Pairs
from rlhf_lab.types.data import Batch, PolicyOutput
from rlhf_lab.types.protocols import Algorithm
from tests.oracle.batches import (
    SEEDS,
    Record,
    agree,
    compare,
    credited,
    first_word,
    graded,
    normal,
    policy_logps,
    ragged_batch,
)
from tests.oracle.trl_pairs import dpo_loss, online_dpo_step

pytestmark = [pytest.mark.oracle, pytest.mark.parametrize("seed", SEEDS)]


def pairs_of(algo: Algorithm, seed: int, ragged: bool = True) -> tuple[Batch, Tensor]:
    """Pairs whose chosen side is sometimes the first sample and sometimes the second, and the order
    that puts all chosen rows first, then all rejected ones, pair by pair."""
    batch = ragged_batch(algo, seed, num_groups=7, ragged=ragged)
    sign_P1 = torch.where(torch.arange(7) % 2 == seed % 2, 1.0, -1.0).double().unsqueeze(1)
    batch = credited(algo, batch, torch.cat([sign_P1, -sign_P1], dim=1).flatten())
    return batch, batch.credit_BT[:, 0].argsort(descending=True, stable=True)


PAIRED: list[tuple[str, Algorithm, dict[str, Any]]] = [
    ("online_dpo", OnlineDPO(beta=0.3), {"beta": 0.3, "loss_type": "sigmoid"}),
    ("dpo", DPO(beta=0.3), {"beta": 0.3, "loss_type": "sigmoid"}),
    ("online_slic", OnlineSLiC(beta=0.5), {"beta": 0.5, "loss_type": "hinge"}),
]


@pytest.mark.parametrize(("name", "algo", "options"), PAIRED, ids=first_word)
def test_pair_losses_are_those_of_trl_dpo(
    seed: int, name: str, algo: Algorithm, options: dict[str, Any], record_property: Record
) -> None:
    batch, order_B = pairs_of(algo, seed)
    compare(
        record_property,
        name,
        algo,
        batch,
        policy_logps(batch, seed, spread=1.0),
        lambda logp: dpo_loss(logp[order_B], batch.rows(order_B), **options),
    )


def test_smoothed_dpo_is_trl_aot_of_one_pair_at_a_time(seed: int, record_property: Record) -> None:
    # TRL dropped cDPO by that name; AOT has its formula, between the quantiles of a batch, which
    # for a batch of one pair are the pair.
    algo = OnlineDPO(beta=0.3, smoothing=0.15)
    batch, order_B = pairs_of(algo, seed)

    def theirs(logp_BT: Tensor) -> Tensor:
        pairs = [
            dpo_loss(logp_BT[pair], batch.rows(pair), 0.3, "aot", smoothing=0.15)
            for pair in order_B.view(2, -1).T
        ]
        return torch.stack(pairs).mean()

    logp_BT = policy_logps(batch, seed, spread=1.0)
    compare(record_property, "online_dpo (smoothing)", algo, batch, logp_BT, theirs)


def test_all_pairs_of_a_group_are_trl_dpo_of_each_pair(seed: int, record_property: Record) -> None:
    algo = OnlineDPO(beta=0.3, pairs=Pairs.all)
    batch = ragged_batch(algo, seed, num_groups=4, group_size=3)
    # The first sample against the others, then the second against the third.
    winners, losers = [0, 0, 1], [1, 2, 2]
    batch = credited(algo, batch, torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64).repeat(4))
    first_P1 = torch.arange(0, 12, 3).unsqueeze(1)
    rows = torch.cat([(first_P1 + torch.tensor(side)).flatten() for side in (winners, losers)])
    compare(
        record_property,
        "online_dpo (all pairs)",
        algo,
        batch,
        policy_logps(batch, seed, spread=1.0),
        lambda logp: dpo_loss(logp[rows], batch.rows(rows), 0.3, "sigmoid"),
    )


@pytest.mark.parametrize(
    "algo", [OnlineIPO(beta=0.4), DPO(beta=0.4, pair_loss=PairLoss.ipo)], ids=lambda algo: algo.name
)
def test_ipo_is_that_of_trl_where_responses_are_equally_long(
    seed: int, algo: Algorithm, record_property: Record
) -> None:
    # TRL's offline IPO takes log-ratios per token: on L tokens each, its beta is ours times L, and
    # its loss ours over L squared.
    batch, order_B = pairs_of(algo, seed, ragged=False)
    length = batch.mask_BT.shape[1]
    compare(
        record_property,
        f"{getattr(algo, 'name', '')} (ipo, equal lengths)",
        algo,
        batch,
        policy_logps(batch, seed, spread=1.0),
        lambda logp: length**2 * dpo_loss(logp[order_B], batch.rows(order_B), 0.4 * length, "ipo"),
    )


def test_sft_on_chosen_is_that_of_trl_where_responses_are_equally_long(
    seed: int, record_property: Record
) -> None:
    # Ours is the likelihood of responses, a mean over them; TRL's is a mean over tokens.
    algo = DPO(pair_loss=PairLoss.sft)
    batch, order_B = pairs_of(algo, seed, ragged=False)
    logp_BT = policy_logps(batch, seed)
    kept = credited(algo, batch.rows(order_B[:7]), torch.ones(7, dtype=torch.float64))
    ours = algo.loss(PolicyOutput(logp_BT[order_B[:7]], torch.zeros_like(kept.mask_BT)), kept).loss
    theirs = dpo_loss(logp_BT[order_B], batch.rows(order_B), 0.1, "sft") * 9
    agree(
        record_property, "dpo (sft, equal lengths)", graded(ours, logp_BT), graded(theirs, logp_BT)
    )


ONLINE: list[tuple[str, Algorithm, str]] = [
    ("online_dpo (rewards to gradient)", OnlineDPO(beta=0.3), "sigmoid"),
    ("online_ipo (rewards to gradient)", OnlineIPO(beta=0.3), "ipo"),
]


@pytest.mark.parametrize(("name", "algo", "loss_type"), ONLINE, ids=first_word)
def test_from_rewards_to_gradient_we_do_what_trl_online_dpo_does(
    seed: int, name: str, algo: Algorithm, loss_type: str, record_property: Record
) -> None:
    batch = ragged_batch(algo, seed, num_groups=7)
    reward_B = normal((14,), torch.Generator().manual_seed(seed))
    credit = algo.credit(reward_B.view(7, 2), batch)
    batch = credited(algo, batch, credit.value_BT[:, 0])
    compare(
        record_property,
        name,
        algo,
        batch,
        policy_logps(batch, seed, spread=1.0),
        lambda logp: online_dpo_step(logp, batch, reward_B, 0.3, loss_type),
    )
