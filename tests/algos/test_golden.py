"""Every algorithm that weighs log-probs or ratios by rewards, against numbers worked out by hand.

Those with values are in test_golden_values.py, those that compare pairs in test_golden_pairs.py.
The rows are those of golden.py, where rewards are 1, 3 and 2, 0.5.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, pvariance, stdev

import pytest
import torch

from rlhf_lab.algos.a_lol import ALoL, RatioOf
from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.cispo import CISPO
from rlhf_lab.algos.dapo import DAPO
from rlhf_lab.algos.grpo import GRPO, DrGRPO, LitePPO
from rlhf_lab.algos.gspo import GSPO
from rlhf_lab.algos.reinforce import REINFORCE, AsymRE, ReinforcePlusPlus, ReMax
from rlhf_lab.algos.reward_regression import TBA, CoPG, Kimi
from rlhf_lab.algos.rloo import RLOO
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.types.data import Objective, Reduction
from tests.support.examples import credited, gradient, group
from tests.support.golden import (
    AWAY,
    LENGTHS,
    POLICY,
    cells,
    collated,
    flat,
    four_rows,
    loss_of,
    one_prompt,
    output_of,
    pessimistic,
    two_prompts,
)

# Whole responses: log-probs under the policy, and policy over proximal.
LOGP = [-3.45, -0.1, -1.35, -3.45]
AWAY_OF_ROW = [0.2, 0.35, -0.2, -0.4]
# Behaviour to reference, k1, of whole rows: 0.5 - 0.2 + 0.2; 0.5; 0.25 - 0.1; -0.5 + 0.5 + 0.2
KL = [0.5, 0.5, 0.15, 0.2]
# Less half a nat's worth of it: 1 - 0.25; 3 - 0.25; 2 - 0.075; 0.5 - 0.1
RETURN = [0.75, 2.75, 1.925, 0.4]


def first_column(batch_BT: torch.Tensor) -> list[float]:
    return [float(x) for x in batch_BT[:, 0]]


@pytest.mark.parametrize(
    ("baseline", "advantage"),
    # the mean of all four returns is 1.45625
    [(True, [-0.70625, 1.29375, 0.46875, -1.05625]), (False, RETURN)],
)
def test_reinforce_by_hand(baseline: bool, advantage: list[float]) -> None:
    algo = REINFORCE(kl_coef=0.5, baseline=baseline)
    batch = four_rows(algo)
    assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)
    expected = -sum(a * logp for a, logp in zip(advantage, LOGP, strict=True)) / 4
    assert loss_of(algo, POLICY, batch) == pytest.approx(expected, abs=1e-6)
    # each token of a row is pulled alike, whatever the row's length
    grad = [-a / 4 for a, length in zip(advantage, LENGTHS, strict=True) for _ in range(length)]
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


def test_rloo_by_hand() -> None:
    algo = RLOO(kl_coef=0.5)
    batch = four_rows(algo)
    advantage = [0.75 - 2.75, 2.75 - 0.75, 1.925 - 0.4, 0.4 - 1.925]
    assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)
    expected = -sum(a * logp for a, logp in zip(advantage, LOGP, strict=True)) / 4
    assert loss_of(algo, POLICY, batch) == pytest.approx(expected, abs=1e-6)


def test_the_baseline_of_rloo_is_the_mean_of_the_other_two() -> None:
    # KL at e^-1 against references e^-1.4, e^-1 and e^-0.8: 0.4, 0, -0.2; returns 0.8, 3, 2.1
    batch = one_prompt(RLOO(kl_coef=0.5), [1.0, 3.0, 2.0], [[-1.4], [-1.0], [-0.8]])
    by_hand = [0.8 - 2.55, 3.0 - 1.45, 2.1 - 1.9]
    assert first_column(batch.credit_BT) == pytest.approx(by_hand, abs=1e-6)


def test_remax_by_hand() -> None:
    algo = ReMax(kl_coef=0.5)
    batch = four_rows(algo)
    # the second of each two is greedy: its reward is the baseline, without its KL
    advantage = [0.75 - 3.0, 1.925 - 0.5]
    assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)
    loss = loss_of(algo, [POLICY[0], POLICY[2]], batch)
    assert loss == pytest.approx(-(-2.25 * -3.45 + 1.425 * -1.35) / 2, abs=1e-6)


def test_remax_takes_the_last_of_each_group_for_its_greedy_sample() -> None:
    assert ReMax().needs.greedy
    rewards = [[1.0, 2.0, 4.0], [5.0, 3.0, 0.0]]
    groups = [group(i, [[-1.0]] * 3, reward) for i, reward in enumerate(rewards)]
    batch = collate(groups, 0)
    batch = replace(batch, reference_logp_BT=batch.behavior_logp_BT)
    credit = ReMax(kl_coef=0.5).credit(rewards_of(groups), batch)
    assert credit.keep_B.tolist() == [True, True, False] * 2
    assert credit.value_BT[credit.keep_B, 0].tolist() == [-3.0, -2.0, 5.0, 3.0]


def test_reinforce_plus_plus_by_hand() -> None:
    algo = ReinforcePlusPlus(kl_coef=0.5, clip=0.2)
    batch = four_rows(algo)
    # the reward less half the KL of this token and all later ones
    return_ = [
        *(1 - 0.5 * 0.5, 1 - 0.5 * 0.0, 1 - 0.5 * 0.2),
        3 - 0.5 * 0.5,
        *(2 - 0.5 * 0.15, 2 - 0.5 * -0.1),
        *(0.5 - 0.5 * 0.2, 0.5 - 0.5 * 0.7, 0.5 - 0.5 * 0.2),
    ]
    centre, deviation = mean(return_), math.sqrt(pvariance(return_))
    advantage = [(g - centre) / deviation for g in return_]
    assert cells(batch.credit_BT) == pytest.approx(advantage, abs=1e-5)
    terms = [
        pessimistic(math.exp(away), a, 0.2, 0.2)
        for away, a in zip(flat(AWAY), advantage, strict=True)
    ]
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(-sum(terms) / 9, abs=1e-5)
    assert output.clipped_BT is not None
    # above with positive credit: row 1; below with negative credit: the middle of row 3
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 0, 1, 0]


def test_copg_by_hand() -> None:
    algo = CoPG(beta=0.5)
    batch = four_rows(algo)
    # policy to reference: 0.9 - 0.3 + 0.15; 0.9; -0.1 - 0.05; -0.45 + 0.1 + 0.1
    regularised = [1 - 0.5 * 0.75, 3 - 0.5 * 0.9, 2 - 0.5 * -0.15, 0.5 - 0.5 * -0.25]
    others = [regularised[row] for row in (1, 0, 3, 2)]
    contrast = [mine - other for mine, other in zip(regularised, others, strict=True)]
    expected = -sum(c * logp for c, logp in zip(contrast, LOGP, strict=True)) / 4
    assert loss_of(algo, POLICY, batch) == pytest.approx(expected, abs=1e-6)
    # the log-ratio in the contrast is a number: no gradient flows through it
    grad = [-c / 4 for c, length in zip(contrast, LENGTHS, strict=True) for _ in range(length)]
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


def test_copg_contrasts_each_of_three_with_the_other_two() -> None:
    algo = CoPG(beta=0.5)
    batch = one_prompt(algo, [1.0, 3.0, 2.0], [[-1.4], [-1.0], [-0.8]])
    # policy -1.2, -0.5, -0.8: away 0.2, 0.5, 0; regularised 0.9, 2.75, 2
    contrast = [0.9 - 2.375, 2.75 - 1.45, 2.0 - 1.825]
    expected = -sum(c * p for c, p in zip(contrast, [-1.2, -0.5, -0.8], strict=True)) / 3
    assert loss_of(algo, [[-1.2], [-0.5], [-0.8]], batch) == pytest.approx(expected, abs=1e-6)


def test_asymre_by_hand() -> None:
    algo = AsymRE(kl_coef=0.5, shift=-0.2)
    batch = four_rows(algo)
    # returns less the means 1.75 and 1.1625 of the two groups, plus 0.2
    advantage = [0.75 - 1.75 + 0.2, 2.75 - 1.75 + 0.2, 1.925 - 1.1625 + 0.2, 0.4 - 1.1625 + 0.2]
    assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)
    expected = -sum(a * logp for a, logp in zip(advantage, LOGP, strict=True)) / 4
    assert loss_of(algo, POLICY, batch) == pytest.approx(expected, abs=1e-6)


def test_asymre_pulls_to_a_group_of_equal_rewards_and_pushes_with_a_positive_shift() -> None:
    reference = [[-1.0], [-1.0]]
    low, high = (
        first_column(one_prompt(AsymRE(shift=shift), [1.0, 1.0], reference).credit_BT)
        for shift in (-0.1, 0.1)
    )
    assert low == pytest.approx([0.1, 0.1])
    assert high == pytest.approx([-0.1, -0.1])


def test_tba_by_hand() -> None:
    algo = TBA(beta=0.5)
    batch = four_rows(algo)
    # policy to reference: 0.75, 0.9; -0.15, -0.25 (see copg). Rewards over beta: 2, 6; 4, 1.
    gaps = [-0.075 - -2.0, 0.075 - 2.0, 0.05 - 1.5, -0.05 - -1.5]
    expected = sum(0.5 * gap**2 for gap in gaps) / 4
    assert loss_of(algo, POLICY, batch) == pytest.approx(expected, abs=1e-5)
    grad = [gap / 4 for gap, length in zip(gaps, LENGTHS, strict=True) for _ in range(length)]
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-5)


def test_the_gradient_of_tba_is_that_of_copg_up_to_a_factor() -> None:
    """(K - 1) / (K beta), here with K = 3: CoPG contrasts with the others, TBA with all."""
    rewards, reference = [1.0, 3.0, 2.0], [[-1.4], [-1.0], [-0.8]]
    policy = [[-1.2], [-0.5], [-0.8]]
    own, theirs = (
        cells(gradient(algo, policy, one_prompt(algo, rewards, reference)), (1, 1, 1))
        for algo in (TBA(beta=0.4), CoPG(beta=0.4))
    )
    assert own == pytest.approx([2 / (3 * 0.4) * pull for pull in theirs], abs=1e-6)


def test_tba_is_zero_at_its_optimum() -> None:
    # log policy = log reference + reward / beta + any constant
    rewards, beta = [1.0, 3.0, 2.0], 2.0
    reference = [[-2.4], [-3.0], [-2.8]]
    policy = [[r[0] + reward / beta - 0.3] for r, reward in zip(reference, rewards, strict=True)]
    algo = TBA(beta=beta)
    assert loss_of(algo, policy, one_prompt(algo, rewards, reference)) == pytest.approx(0, abs=1e-9)


def test_kimi_by_hand() -> None:
    algo = Kimi(tau=0.5)
    batch = four_rows(algo)
    advantage = [-1.0, 1.0, 0.75, -0.75]
    assert first_column(batch.credit_BT) == pytest.approx(advantage)
    terms = [
        -a * logp + 0.25 * away**2
        for a, logp, away in zip(advantage, LOGP, AWAY_OF_ROW, strict=True)
    ]
    assert loss_of(algo, POLICY, batch) == pytest.approx(sum(terms) / 4, abs=1e-6)
    # Kimi k1.5's gradient (eq. 3): credit less tau times the log-ratio, at every token
    pulls = [(-a + 0.5 * away) / 4 for a, away in zip(advantage, AWAY_OF_ROW, strict=True)]
    grad = [pull for pull, length in zip(pulls, LENGTHS, strict=True) for _ in range(length)]
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


def test_dr_grpo_by_hand_divides_by_the_limit_and_by_no_length() -> None:
    algo = DrGRPO(clip=0.2)
    batch = four_rows(algo, limit=5)
    advantage = [-1.0, 1.0, 0.75, -0.75]
    assert first_column(batch.credit_BT) == pytest.approx(advantage)
    terms = [
        pessimistic(math.exp(away), advantage[row], 0.2, 0.2)
        for row in range(4)
        for away in AWAY[row]
    ]
    assert loss_of(algo, POLICY, batch) == pytest.approx(-sum(terms) / (4 * 5), abs=1e-6)
    twice = loss_of(algo, POLICY, four_rows(algo, limit=10))
    assert twice == pytest.approx(-sum(terms) / (4 * 10), abs=1e-6)


def standardised(rewards: list[float], epsilon: float) -> list[float]:
    return [(r - mean(rewards)) / (stdev(rewards) + epsilon) for r in rewards]


# Of each group: (1, 3) and (2, 0.5).
ADVANTAGE = [*standardised([1.0, 3.0], 1e-3), *standardised([2.0, 0.5], 1e-3)]


def test_grpo_by_hand_divides_by_the_deviation_of_the_group_of_the_round_or_by_none() -> None:
    of_round = stdev([1.0, 3.0, 2.0, 0.5]) + 1e-3
    by_hand = {
        Deviation.group: ADVANTAGE,
        Deviation.batch: [a / of_round for a in (-1.0, 1.0, 0.75, -0.75)],
        Deviation.none: [-1.0, 1.0, 0.75, -0.75],
    }
    for deviation, advantage in by_hand.items():
        batch = four_rows(GRPO(deviation=deviation, epsilon=1e-3))
        assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)


def test_grpo_with_the_deviation_of_the_round_is_lite_ppo() -> None:
    lite = LitePPO()
    same = GRPO(deviation=Deviation.batch, kl_coef=0.0, reduction=lite.reduction)
    assert loss_of(same, POLICY, four_rows(same)) == loss_of(lite, POLICY, four_rows(lite))
    # Row 1 alone is clipped from above: its token counts 1.28 times its advantage, not 1.2 times.
    higher = replace(same, clip_higher=0.08)
    gained = loss_of(same, POLICY, four_rows(same)) - loss_of(higher, POLICY, four_rows(higher))
    advantage = 1.0 / (stdev([1.0, 3.0, 2.0, 0.5]) + lite.epsilon)
    assert gained == pytest.approx(advantage * 0.08 / 9, abs=1e-6)


def test_dapo_by_hand_clips_further_away_above_than_below() -> None:
    algo = DAPO(clip_low=0.2, clip_high=0.28, epsilon=1e-3, overlong_share=0.2)
    batch = four_rows(algo, limit=10)
    assert first_column(batch.credit_BT) == pytest.approx(ADVANTAGE, abs=1e-6)
    up, down = math.exp(0.35), math.exp(-0.3)
    assert up > 1.28 and down < 0.8
    terms = [
        # row 0, bad: its token that became likelier is not clipped
        *(ADVANTAGE[0] * r for r in (up, math.exp(-0.05), math.exp(-0.1))),
        # row 1, good: at most 1.28
        ADVANTAGE[1] * 1.28,
        # row 2, good: its token that became less likely is not clipped
        *(ADVANTAGE[2] * r for r in (down, math.exp(0.1))),
        # row 3, bad: at least 0.8
        *(ADVANTAGE[3] * r for r in (math.exp(-0.05), 0.8, math.exp(-0.05))),
    ]
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(-sum(terms) / 9, abs=1e-6)
    assert output.clipped_BT is not None
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 0, 1, 0]


def test_dapo_punishes_the_last_fifth_of_the_limit() -> None:
    algo = DAPO(overlong_share=0.2, overlong_penalty=0.5, epsilon=1e-3)
    groups = [group(0, [[-1.0] * length for length in (8, 9, 10)], [1.0, 1.0, 0.0])]
    batch = credited(algo, groups, collate(groups, 0, limit=10))[0]
    # eq. 13: nothing up to eight tokens, half at nine, all at ten; here all is a half
    by_hand = standardised([1.0, 1.0 - 0.25, 0.0 - 0.5], 1e-3)
    assert first_column(batch.credit_BT) == pytest.approx(by_hand, abs=1e-6)
    free = credited(replace(algo, overlong_share=0.0), groups, collate(groups, 0, limit=10))[0]
    by_hand = standardised([1.0, 1.0, 0.0], 1e-3)
    assert first_column(free.credit_BT) == pytest.approx(by_hand, abs=1e-6)


def test_dapo_drops_a_group_of_equal_rewards_even_where_lengths_differ() -> None:
    groups = [
        group(0, [[-1.0] * 10, [-1.0]], [1.0, 1.0]),
        group(1, [[-1.0] * 10, [-1.0]], [1.0, 0.0]),
    ]
    credit = DAPO().credit(rewards_of(groups), collate(groups, 0))
    assert credit.keep_B.tolist() == [False, False, True, True]


def test_gspo_by_hand() -> None:
    algo = GSPO(clip_low=0.05, clip_high=0.08, epsilon=1e-3)
    batch = four_rows(algo)
    # the mean log-ratio of a row: 0.2 / 3; 0.35; -0.2 / 2; -0.4 / 3
    ratio = [math.exp(0.2 / 3), math.exp(0.35), math.exp(-0.1), math.exp(-0.4 / 3)]
    used = [ratio[0], 1.08, ratio[2], 0.95]
    expected = -sum(r * a for r, a in zip(used, ADVANTAGE, strict=True)) / 4
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(expected, abs=1e-6)
    assert output.clipped_BT is not None
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 1, 1, 1]
    # eq. 10: each token's share of the gradient is the row's ratio over its length
    pulls = [-ratio[0] * ADVANTAGE[0] / 3, 0.0, -ratio[2] * ADVANTAGE[2] / 2, 0.0]
    grad = [pull / 4 for pull, n in zip(pulls, LENGTHS, strict=True) for _ in range(n)]
    assert cells(gradient(algo, POLICY, batch)) == pytest.approx(grad, abs=1e-6)


@pytest.mark.parametrize("clip_low", [0.1, 1.0])
def test_cispo_by_hand_caps_weights_and_cuts_no_gradient(clip_low: float) -> None:
    algo = CISPO(clip_low=clip_low, clip_high=0.25, epsilon=1e-3)
    batch = four_rows(algo)
    low = max(1 - clip_low, math.exp(-0.3))
    weight = [
        *(1.25, math.exp(-0.05), math.exp(-0.1)),
        1.25,
        *(low, math.exp(0.1)),
        *(math.exp(-0.05), low, math.exp(-0.05)),
    ]
    advantage = [a for a, n in zip(ADVANTAGE, LENGTHS, strict=True) for _ in range(n)]
    pulls = [w * a for w, a in zip(weight, advantage, strict=True)]
    expected = -sum(p * logp for p, logp in zip(pulls, flat(POLICY), strict=True)) / 9
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(expected, abs=1e-6)
    assert output.clipped_BT is None
    grad = cells(gradient(algo, POLICY, batch))
    assert grad == pytest.approx([-p / 9 for p in pulls], abs=1e-6)
    assert all(grad)
    num_clipped = 4 if clip_low < 1 else 2
    assert float(output.metrics["cispo/weights_clipped"]) == pytest.approx(num_clipped / 9)


def test_the_loss_of_scalerl_by_hand_is_cispo_with_a_mean_of_prompts() -> None:
    algo = CISPO(clip_high=4.0, epsilon=1e-3, reduction=Reduction.prompt_mean)
    batch = four_rows(algo)
    # both prompts count alike, one with 3 + 1 tokens, the other with 2 + 3
    weight = [1 / 8] * 4 + [1 / 10] * 5
    pulls = [
        w * math.exp(away) * a
        for w, away, a in zip(
            weight,
            flat(AWAY),
            [a for a, n in zip(ADVANTAGE, LENGTHS, strict=True) for _ in range(n)],
            strict=True,
        )
    ]
    grad = cells(gradient(algo, POLICY, batch))
    assert grad == pytest.approx([-pull for pull in pulls], abs=1e-6)


def test_lite_ppo_by_hand() -> None:
    algo = LitePPO(clip=0.2, epsilon=1e-3)
    batch = four_rows(algo)
    deviation = stdev([1.0, 3.0, 2.0, 0.5])
    advantage = [centred / (deviation + 1e-3) for centred in (-1.0, 1.0, 0.75, -0.75)]
    assert first_column(batch.credit_BT) == pytest.approx(advantage, abs=1e-6)
    terms = [
        pessimistic(math.exp(away), advantage[row], 0.2, 0.2)
        for row in range(4)
        for away in AWAY[row]
    ]
    assert loss_of(algo, POLICY, batch) == pytest.approx(-sum(terms) / 9, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio_of", "objective", "weights"),
    [
        # whole responses: exp(0.35) is cut at 1.3, exp(-0.2) is within
        ("sequence", Objective.sequence_ratio, [[1.3], [math.exp(-0.2)] * 2]),
        ("token", Objective.token_ratio, [[1.3], [math.exp(-0.3), math.exp(0.1)]]),
        ("none", Objective.likelihood, [[1.0], [1.0, 1.0]]),
    ],
)
def test_a_lol_by_hand(ratio_of: str, objective: Objective, weights: list[list[float]]) -> None:
    algo = ALoL(clip=0.3, ratio_of=RatioOf(ratio_of))
    assert algo.objective is objective
    credit = algo.credit(rewards_of(two_prompts()), collated())
    assert credit.keep_B.tolist() == [False, True, True, False]
    batch = four_rows(algo)
    assert first_column(batch.credit_BT) == pytest.approx([1.0, 0.75])
    better = [POLICY[1], POLICY[2]]
    pulls = [[w * a for w in row] for row, a in zip(weights, (1.0, 0.75), strict=True)]
    expected = -sum(p * logp for p, logp in zip(flat(pulls), flat(better), strict=True)) / 2
    assert loss_of(algo, better, batch) == pytest.approx(expected, abs=1e-6)
    # the ratio is a number: the gradient is its weight times credit, even where it is cut
    grad = cells(gradient(algo, better, batch), [1, 2])
    assert grad == pytest.approx([-p / 2 for p in flat(pulls)], abs=1e-6)
