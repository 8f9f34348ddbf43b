"""Golden tests: every algorithm against numbers worked out by hand, and properties of all."""

from __future__ import annotations

import math

import pytest
import torch

from rlhf_lab.algos.advantages import best_and_worst, leave_one_out
from rlhf_lab.algos.common import clipped_surrogate, k1, k3
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.algos.pairs import BestOfN, OnlineDPO
from rlhf_lab.algos.rloo import ProximalRLOO
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.types.errors import UserError
from tests.support.examples import gradient, group, policy_output, rows

TWO_GROUPS = [
    group(0, [[-1.0, -2.0], [-0.5]], [1.0, 3.0]),
    group(1, [[-0.25], [-1.5, -0.5, -1.0]], [2.0, 0.0], prompt_len=4),
]
REFERENCE = [[-1.5, -2.0], [-1.0], [-0.5], [-1.0, -1.0, -1.0]]
POLICY = [[-0.9, -2.2], [-0.4], [-0.35], [-1.4, -0.7, -0.9]]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_online_dpo_by_hand() -> None:
    algo = OnlineDPO(beta=0.5)
    batch = rows(algo, TWO_GROUPS, REFERENCE)
    output = algo.loss(policy_output(POLICY, batch), batch)
    # log-ratios: row 0: (0.6 - 0.2) = 0.4; row 1: 0.6; row 2: 0.15; row 3: (-0.4 + 0.3 + 0.1) = 0
    # group 0 prefers row 1: margin 0.5 * (0.6 - 0.4); group 1 prefers row 2: 0.5 * (0.15 - 0)
    margins = [0.1, 0.075]
    expected = -sum(math.log(sigmoid(m)) for m in margins) / 2
    assert float(output.loss.detach()) == pytest.approx(expected, abs=1e-6)
    assert float(output.metrics["dpo/margin"].detach()) == pytest.approx(0.0875, abs=1e-6)
    assert float(output.metrics["dpo/accuracy"]) == pytest.approx(1.0)
    # every token of a row gets the same pull: +-beta * sigmoid(-margin) / pairs
    grad_BT = gradient(algo, POLICY, batch)
    assert float(grad_BT[1, 0]) == pytest.approx(-0.5 * sigmoid(-0.1) / 2, abs=1e-6)
    assert float(grad_BT[0, 1]) == pytest.approx(+0.5 * sigmoid(-0.1) / 2, abs=1e-6)


def test_online_dpo_takes_best_and_worst_of_many_and_drops_ties() -> None:
    algo = OnlineDPO()
    groups = [
        group(0, [[-1.0], [-1.0], [-1.0]], [0.5, -1.0, 2.0]),
        group(1, [[-1.0], [-1.0], [-1.0]], [1.0, 1.0, 1.0]),
    ]
    credit = algo.credit(rewards_of(groups), collate(groups, 0))
    assert credit.value_BT[:, 0].tolist() == [0, -1, 1, 0, 0, 0]
    assert credit.keep_B.tolist() == [False, True, True, False, False, False]


def test_proximal_rloo_by_hand() -> None:
    algo = ProximalRLOO(kl_coef=0.5, clip=0.2)
    batch = rows(algo, TWO_GROUPS, REFERENCE)
    # behaviour-to-reference KL: 0.5, 0.5, 0.25, (-0.5 + 0.5 + 0.0) = 0
    # rewards less 0.5 KL: 0.75, 2.75 | 1.875, 0; leave-one-out: -2, 2 | 1.875, -1.875
    assert batch.credit_BT[:, 0].tolist() == pytest.approx([-2.0, 2.0, 1.875, -1.875])
    output = algo.loss(policy_output(POLICY, batch), batch)
    # sequence log-ratios: 0.1 - 0.2 = -0.1; 0.1; -0.1; 0.1 - 0.2 + 0.1 = 0
    ratios = [math.exp(-0.1), math.exp(0.1), math.exp(-0.1), 1.0]
    advantages = [-2.0, 2.0, 1.875, -1.875]
    expected = -sum(r * a for r, a in zip(ratios, advantages, strict=True)) / 4
    assert float(output.loss.detach()) == pytest.approx(expected, abs=1e-6)
    assert output.clipped_BT is not None and not output.clipped_BT.any()


def test_best_of_n_by_hand() -> None:
    algo = BestOfN()
    batch = rows(algo, TWO_GROUPS, REFERENCE)
    assert len(batch) == 2
    best = [POLICY[1], POLICY[2]]
    loss = algo.loss(policy_output(best, batch), batch).loss
    assert float(loss.detach()) == pytest.approx((0.4 + 0.35) / 2, abs=1e-6)


def test_grpo_by_hand() -> None:
    algo = GRPO(clip=0.2, kl_coef=0.1, epsilon=1e-4)
    batch = rows(algo, TWO_GROUPS, REFERENCE)
    std = math.sqrt(2.0)  # of (1, 3) and of (2, 0), unbiased
    advantage = 1 / (std + 1e-4)
    assert batch.credit_BT[0].tolist() == pytest.approx([-advantage, -advantage, 0.0])
    signs = [-1, 1, 1, -1]
    expected = 0.0
    for row in range(4):
        tokens = zip(
            POLICY[row], TWO_GROUPS[row // 2].samples[row % 2].logps, REFERENCE[row], strict=True
        )
        terms = [
            -min(
                math.exp(p - b) * signs[row] * advantage,
                min(max(math.exp(p - b), 0.8), 1.2) * signs[row] * advantage,
            )
            + 0.1 * (math.exp(r - p) - 1 - (r - p))
            for p, b, r in tokens
        ]
        expected += sum(terms) / len(terms) / 4
    loss = algo.loss(policy_output(POLICY, batch), batch).loss
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-6)


def test_the_clip_stops_the_gradient_only_where_it_would_reward_more_distance() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, clipped = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [0.0, 1.0, -1.0, 0.0]
    assert clipped.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_leave_one_out_sums_to_zero() -> None:
    reward_PG = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0]])
    assert leave_one_out(reward_PG)[0].tolist() == pytest.approx([-3.0, -1.5, 4.5])
    assert leave_one_out(reward_PG).sum().item() == pytest.approx(0.0)


def test_the_first_of_equal_bests_wins() -> None:
    best_PG, worst_PG = best_and_worst(torch.tensor([[2.0, 2.0, 0.0, 0.0]]))
    assert best_PG.tolist() == [[1, 0, 0, 0]]
    assert worst_PG.tolist() == [[0, 0, 1, 0]]


def test_k1_and_k3_estimate_the_same_kl() -> None:
    torch.manual_seed(0)
    p, q = torch.randn(1, 8).log_softmax(1), torch.randn(1, 8).log_softmax(1)
    exact = (p.exp() * (p - q)).sum()
    assert (p.exp() * k1(p, q)).sum() == pytest.approx(float(exact), abs=1e-6)
    assert (p.exp() * k3(p, q)).sum() == pytest.approx(float(exact), abs=1e-6)
    assert bool((k3(p, q) >= 0).all())


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: OnlineDPO(beta=0.0), "algo.beta=0.0"),
        (lambda: ProximalRLOO(clip=3.0), "algo.clip=3.0"),
        (lambda: ProximalRLOO(kl_coef=-1.0), "algo.kl_coef=-1.0"),
        (lambda: GRPO(epsilon=0.0), "algo.epsilon=0.0"),
    ],
)
def test_options_out_of_range_are_refused(make: object, key: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=key):
        make()
