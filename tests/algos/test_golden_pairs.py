"""Every algorithm that compares samples, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from rlhf_lab.algos.cgpo import CODPO, CRPG, CRRAFT
from rlhf_lab.algos.pairs import DPO, BestOfN, OnlineDPO, OnlineIPO, OnlineSLiC, PairLoss, Pairs
from rlhf_lab.types.protocols import Algorithm
from tests.support.examples import gradient
from tests.support.golden import (
    LENGTHS,
    POLICY,
    REFERENCE,
    cells,
    flat,
    four_rows,
    loss_of,
    one_prompt,
    output_of,
)

# Policy to reference, whole rows: 0.9 - 0.3 + 0.15; 0.9; -0.1 - 0.05; -0.45 + 0.1 + 0.1.
# The first prompt prefers row 1 (0.9 - 0.75), the second row 2 (-0.15 + 0.25).
GAPS = [0.15, 0.10]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_row(pulls: list[float]) -> list[float]:
    """Every token of a row is pulled alike."""
    return [pull for pull, length in zip(pulls, LENGTHS, strict=True) for _ in range(length)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_online_dpo_by_hand(smoothing: float) -> None:
    algo = OnlineDPO(beta=2.0, smoothing=smoothing)
    batch = four_rows(algo)
    right, wrong = 1 - smoothing, smoothing
    terms = [
        -right * math.log(sigmoid(2 * gap)) - wrong * math.log(sigmoid(-2 * gap)) for gap in GAPS
    ]
    assert loss_of(algo, POLICY, batch) == pytest.approx(sum(terms) / 2, abs=1e-6)
    # cDPO: beta (sigmoid(margin) - (1 - smoothing)) pulls the preferred one, half for each pair
    pull = [2 * (sigmoid(2 * gap) - right) / 2 for gap in GAPS]
    grad = by_row([-pull[0], pull[0], pull[1], -pull[1]])
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


# Behaviour to reference, whole rows: 0.5, 0.5, 0.15, 0.2 nats; rewards 1 and 3, 2 and 0.5.
WHOLE = [-3.45, -0.1, -1.35, -3.45]


def test_crpg_by_hand() -> None:
    algo = CRPG(kl_max=1.0)
    # 1 * 0.5, 3 * 0.5, 2 * 0.85, 0.5 * 0.8, less their mean of 1.025
    advantage = [-0.525, 0.475, 0.675, -0.625]
    expected = -sum(a * logp for a, logp in zip(advantage, WHOLE, strict=True)) / 4
    assert loss_of(algo, POLICY, four_rows(algo)) == pytest.approx(expected, abs=1e-6)
    # farther than kl_max from the reference nothing is earned, and never less than nothing
    near = CRPG(kl_max=0.3)
    credit = four_rows(near).credit_BT[:, 0].tolist()
    earned = [0.0, 0.0, 2 * 0.5, 0.5 / 3]
    assert credit == pytest.approx([e - sum(earned) / 4 for e in earned], abs=1e-6)


def test_crraft_by_hand() -> None:
    far = CRRAFT(kl_max=10.0)
    # the best of each prompt, rows 1 and 2, times their rewards of 3 and 2
    both = loss_of(far, [POLICY[1], POLICY[2]], four_rows(far))
    assert both == pytest.approx((3 * 0.1 + 2 * 1.35) / 2, abs=1e-6)
    near = CRRAFT(kl_max=0.3)
    # the first prompt has no sample near enough
    assert loss_of(near, [POLICY[2]], four_rows(near)) == pytest.approx(2 * 1.35, abs=1e-6)


def test_codpo_by_hand() -> None:
    algo = CODPO(beta=2.0, likelihood=0.5)
    terms = [-math.log(sigmoid(2 * gap)) for gap in GAPS]
    # mean log-prob of a token of the preferred rows 1 and 2: -0.1 and -0.675
    expected = sum(terms) / 2 + 0.5 * (0.1 + 0.675) / 2
    assert loss_of(algo, POLICY, four_rows(algo)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("algo", [CRRAFT(), CODPO()])
def test_a_group_whose_samples_all_violate_a_constraint_is_dropped(algo: Algorithm) -> None:
    assert len(one_prompt(algo, [0.0, -1.0], [[-1.0], [-1.0]])) == 0
    assert len(one_prompt(algo, [0.0, 0.4], [[-1.0], [-1.0]])) > 0


THREE_LOGP = [[-1.2], [-0.5], [-0.8]]
THREE_REFERENCE = [[-1.4], [-1.0], [-0.7]]
# Log-ratios of the three: 0.2, 0.5, -0.1.


@pytest.mark.parametrize(
    ("reward", "gaps"),
    [
        # two equal bests: each of them against the last, not against each other
        ([2.0, 2.0, 1.0], [0.2 + 0.1, 0.5 + 0.1]),
        ([2.0, 1.0, 1.0], [0.2 - 0.5, 0.2 + 0.1]),
        ([1.0, 3.0, 2.0], [0.5 + 0.1, 0.5 - 0.2, -0.1 - 0.2]),
    ],
)
def test_all_pairs_of_unequal_reward_count_alike(reward: list[float], gaps: list[float]) -> None:
    algos: list[tuple[Algorithm, list[float]]] = [
        (OnlineDPO(beta=2.0, pairs=Pairs.all), [-math.log(sigmoid(2 * gap)) for gap in gaps]),
        (OnlineIPO(beta=2.0, pairs=Pairs.all), [(gap - 0.25) ** 2 for gap in gaps]),
        (OnlineSLiC(beta=2.0, pairs=Pairs.all), [max(0.0, 1 - 2 * gap) for gap in gaps]),
    ]
    for algo, terms in algos:
        batch = one_prompt(algo, reward, THREE_REFERENCE)
        assert len(batch) == 3
        loss = loss_of(algo, THREE_LOGP, batch)
        assert loss == pytest.approx(sum(terms) / len(terms), abs=1e-6), algo


def test_best_against_worst_leaves_the_middle_out() -> None:
    algo = OnlineDPO(beta=2.0)
    batch = one_prompt(algo, [1.0, 3.0, 2.0], THREE_REFERENCE)
    assert batch.credit_BT[:, 0].tolist() == [-1, 1]
    loss = loss_of(algo, THREE_LOGP[:2], batch)
    assert loss == pytest.approx(-math.log(sigmoid(2 * 0.3)), abs=1e-6)


def test_a_prompt_weighs_the_same_with_many_pairs_as_with_few() -> None:
    algo = OnlineDPO(pairs=Pairs.all)
    few = one_prompt(algo, [1.0, 0.0], [[-1.0]] * 2)
    many = one_prompt(algo, [1.0, 0.0, 2.0], [[-1.0]] * 3)
    for batch in (few, many):
        # a policy that is the reference: log 2, however many pairs there are
        loss = loss_of(algo, [[-1.0]] * len(batch), batch)
        assert loss == pytest.approx(math.log(2), abs=1e-6)


def test_online_ipo_by_hand() -> None:
    algo = OnlineIPO(beta=0.5)
    batch = four_rows(algo)
    # drawn to 1 / (2 * 0.5) = 1
    expected = ((0.15 - 1) ** 2 + (0.10 - 1) ** 2) / 2
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(expected, abs=1e-6)
    assert float(output.metrics["dpo/margin"]) == pytest.approx(0.5 * 0.125, abs=1e-6)
    grad = by_row([0.85, -0.85, -0.90, 0.90])
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


def test_online_slic_by_hand_on_both_sides_of_the_hinge() -> None:
    near = OnlineSLiC(beta=0.5)
    batch = four_rows(near)
    expected = ((1 - 0.5 * 0.15) + (1 - 0.5 * 0.10)) / 2
    assert loss_of(near, POLICY, batch) == pytest.approx(expected, abs=1e-6)
    # at beta 8 the first pair has a margin of 1.2 and rests, the second misses 0.2
    far = OnlineSLiC(beta=8.0)
    batch = four_rows(far)
    assert loss_of(far, POLICY, batch) == pytest.approx(0.2 / 2, abs=1e-6)
    grad = by_row([0.0, 0.0, -4.0, 4.0])
    assert cells(gradient(far, POLICY, batch)) == pytest.approx(grad, abs=1e-5)


@pytest.mark.parametrize(
    ("pair_loss", "terms"),
    [
        ("sigmoid", [-math.log(sigmoid(2 * gap)) for gap in GAPS]),
        ("ipo", [(gap - 0.25) ** 2 for gap in GAPS]),
    ],
)
def test_offline_dpo_and_ipo_by_hand(pair_loss: str, terms: list[float]) -> None:
    algo = DPO(beta=2.0, pair_loss=PairLoss(pair_loss))
    batch = four_rows(algo)
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(sum(terms) / 2, abs=1e-6)
    assert float(output.metrics["dpo/margin"]) == pytest.approx(2 * 0.125, abs=1e-6)
    assert float(output.metrics["dpo/accuracy"]) == pytest.approx(1.0)


def test_offline_sft_is_the_likelihood_of_the_chosen_side() -> None:
    algo = DPO(pair_loss=PairLoss.sft)
    batch = four_rows(algo)
    assert len(batch) == 2
    loss = loss_of(algo, [POLICY[1], POLICY[2]], batch)
    assert loss == pytest.approx((0.1 + 1.35) / 2, abs=1e-6)


def test_best_of_n_with_a_kl_penalty_by_hand() -> None:
    algo = BestOfN(kl_coef=0.5)
    batch = four_rows(algo)
    best = [POLICY[1], POLICY[2]]
    # k3 of each token, from log(reference / policy); the two of row 2 weigh half as much each
    logs = [r - p for r, p in zip(flat(REFERENCE[1:3]), flat(best), strict=True)]
    penalty = [math.exp(x) - 1 - x for x in logs]
    expected = (0.1 + 1.35) / 2 + 0.5 * (penalty[0] / 2 + penalty[1] / 4 + penalty[2] / 4)
    assert loss_of(algo, best, batch) == pytest.approx(expected, abs=1e-6)
