"""The penalty on KL in the reward or in the loss, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.grpo import GRPO, DrGRPO
from rlhf_lab.algos.gspo import GSPO
from rlhf_lab.algos.kl import TERMS, Estimator, KLLocation, KLPenalty
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.algos.rloo import ProximalRLOO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.types.data import Objective, Reduction
from rlhf_lab.types.errors import UserError
from tests.support.golden import POLICY, VALUE, cells, four_rows, loss_of

ALGORITHMS = classes("algo")
PENALTIES: list[Any] = [kind for kind in ALGORITHMS.values() if issubclass(kind, KLPenalty)]
# Half the squared log-ratio of policy to reference, summed over each row's tokens, of
# 0.9, -0.3, 0.15; 0.9; -0.1, -0.05; -0.45, 0.1, 0.1, and over the rows' lengths.
K2_OF_ROWS = [0.46125, 0.405, 0.00625, 0.11125]
K2_OF_MEANS = [0.15375, 0.405, 0.003125, 0.11125 / 3]
LIMIT = 5
K2 = {
    Reduction.token_mean: sum(K2_OF_ROWS) / 9,
    Reduction.sequence_mean: sum(K2_OF_MEANS) / 4,
    Reduction.prompt_mean: (sum(K2_OF_ROWS[:2]) / 4 + sum(K2_OF_ROWS[2:]) / 5) / 2,
    Reduction.per_limit: sum(K2_OF_ROWS) / (4 * LIMIT),
}


def test_every_loss_with_a_ratio_has_the_penalty() -> None:
    ratios = (Objective.token_ratio, Objective.sequence_ratio)
    with_ratio = {name for name, kind in ALGORITHMS.items() if kind().objective in ratios}
    # A-LoL has a term of its own, `reference_kl`, which multiplies no advantage; KL to the
    # reference, a teacher, is all that distillation learns from.
    assert with_ratio - {kind().name for kind in PENALTIES} == {"a_lol", "distill"}


@pytest.mark.parametrize("kind", PENALTIES, ids=lambda kind: kind().name)
def test_in_the_loss_by_hand(kind: Any) -> None:
    free = kind(kl_coef=0.0, kl_in=KLLocation.loss)
    algo = replace(free, kl_coef=0.5, kl_estimator=Estimator.k2)
    batch = four_rows(algo, limit=LIMIT)
    assert torch.equal(batch.credit_BT, four_rows(free, limit=LIMIT).credit_BT)
    policy, value = (POLICY, VALUE)
    added = K2[algo.reduction]
    if algo.needs.greedy:  # the second of each two is not trained on
        policy, value = ([POLICY[0], POLICY[2]], [VALUE[0], VALUE[2]])
        added = (K2_OF_MEANS[0] + K2_OF_MEANS[2]) / 2
    found = loss_of(algo, policy, batch, value) - loss_of(free, policy, batch, value)
    assert found == pytest.approx(0.5 * added, abs=1e-6)
    assert algo.needs.reference


@pytest.mark.parametrize("reduction", list(Reduction))
def test_in_the_loss_by_hand_under_every_reduction(reduction: Reduction) -> None:
    free = GRPO(kl_coef=0.0, reduction=reduction)
    algo = replace(free, kl_coef=0.5, kl_estimator=Estimator.k2)
    batch = four_rows(algo, limit=LIMIT)
    found = loss_of(algo, POLICY, batch) - loss_of(free, POLICY, batch)
    assert found == pytest.approx(0.5 * K2[reduction], abs=1e-6)


@pytest.mark.parametrize(
    ("estimator", "advantage"),
    [
        # of rewards less half of behaviour to reference, 0.5, 0.5, 0.15, 0.2 in sum
        (Estimator.k1, [-1.0, 1.0, 0.7625, -0.7625]),
        # of rewards less half of 0.165, 0.125, 0.03625, 0.27: 0.9175, 2.9375, 1.981875, 0.365
        (Estimator.k2, [-1.01, 1.01, 0.8084375, -0.8084375]),
    ],
)
def test_in_the_reward_of_responses_by_hand(estimator: Estimator, advantage: list[float]) -> None:
    options: dict[str, Any] = {
        "kl_coef": 0.5,
        "kl_in": KLLocation.reward,
        "kl_estimator": estimator,
    }
    for algo in (GRPO(deviation=Deviation.none, **options), DrGRPO(**options)):
        batch = four_rows(algo)
        assert batch.credit_BT[:, 0].tolist() == pytest.approx(advantage, abs=1e-6)
    twice = [2 * number for number in advantage]
    batch = four_rows(ProximalRLOO(**options))
    assert batch.credit_BT[:, 0].tolist() == pytest.approx(twice, abs=1e-6)


@pytest.mark.parametrize("kind", PENALTIES, ids=lambda kind: kind().name)
def test_in_the_reward_it_changes_credit_alone(kind: Any) -> None:
    algo = kind(kl_coef=0.5, kl_in=KLLocation.reward)
    batch, free = four_rows(algo), replace(algo, kl_coef=0.0)
    assert not torch.equal(batch.credit_BT, four_rows(free).credit_BT)
    policy = [POLICY[0], POLICY[2]] if algo.needs.greedy else POLICY
    assert loss_of(algo, policy, batch, VALUE[: len(policy)]) == loss_of(
        free, policy, batch, VALUE[: len(policy)]
    )
    assert algo.needs.reference


def test_in_the_reward_of_tokens_by_hand() -> None:
    algo = PPO(kl_coef=0.5, kl_estimator=Estimator.k2, gamma=1.0, lam=1.0, whiten_advantages=False)
    # Half of k2, 0.125, 0.02, 0.02; 0.125; 0.03125, 0.005; 0.125, 0.125, 0.02, of this token and
    # all later ones is subtracted from the reward, and so is the value.
    by_hand = [
        *(1 - 0.0825 - 0.5, 1 - 0.02 - 0.2, 1 - 0.01 + 0.3),
        3 - 0.0625 - 1.0,
        *(2 - 0.018125 - 0.4, 2 - 0.0025 - 0.8),
        *(0.5 - 0.135 - 0.1, 0.5 - 0.0725 + 0.2, 0.5 - 0.01 - 0.3),
    ]
    assert cells(four_rows(algo).credit_BT) == pytest.approx(by_hand, abs=1e-6)
    # In the loss it is in no return.
    moved = replace(algo, kl_in=KLLocation.loss)
    gain = [1.0 - 0.5, 1.0 - 0.2, 1.0 + 0.3, 2.0, 1.6, 1.2, 0.4, 0.7, 0.2]
    assert cells(four_rows(moved).credit_BT) == pytest.approx(gain, abs=1e-6)
    assert moved.with_state({"kl_coef": 0.1}).kl_in is KLLocation.loss


def test_the_default_is_the_form_of_the_paper() -> None:
    assert PPO() == PPO(kl_in=KLLocation.auto, kl_estimator=Estimator.auto)
    algo, same = (
        GRPO(kl_coef=0.1),
        GRPO(kl_coef=0.1, kl_in=KLLocation.loss, kl_estimator=Estimator.k3),
    )
    batch = four_rows(algo)
    assert loss_of(algo, POLICY, batch) == loss_of(same, POLICY, batch)
    explicit = ProximalRLOO(kl_in=KLLocation.reward, kl_estimator=Estimator.k1)
    assert torch.equal(four_rows(ProximalRLOO()).credit_BT, four_rows(explicit).credit_BT)


@pytest.mark.parametrize("kind", [PPO, ProximalRLOO])
def test_k1_in_the_loss_is_refused(kind: Any) -> None:
    with pytest.raises(UserError, match=r"algo\.kl_estimator=k1 .* pass algo\.kl_estimator=k2"):
        kind(kl_in=KLLocation.loss, kl_estimator=Estimator.k1)
    with pytest.raises(UserError, match=r"algo\.kl_in=reward"):
        GSPO(kl_coef=0.1, kl_estimator=Estimator.k1)


def test_k2_in_the_loss_has_the_gradient_of_kl_and_k1_has_none() -> None:
    """Over all tokens of a vocabulary of three, each as often as the policy draws it."""
    logits = torch.tensor([[0.3, -0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[-0.2, 0.4, 0.1]], dtype=torch.float64).log_softmax(1)
    logp = logits.log_softmax(1)

    def gradient(value: torch.Tensor) -> list[float]:
        (found,) = torch.autograd.grad(value, logits, retain_graph=True)
        return [float(number) for number in found.flatten()]

    exact = gradient((logp.exp() * (logp - reference)).sum())
    drawn = logp.exp().detach()
    by_name = {}
    for name, terms in TERMS.items():
        by_name[name] = gradient((drawn * terms(logp, reference)).sum())
    assert by_name[Estimator.k2] == pytest.approx(exact)
    assert by_name[Estimator.k1] == pytest.approx([0.0] * 3, abs=1e-12)
    assert by_name[Estimator.k3] != pytest.approx(exact, rel=0.05)
