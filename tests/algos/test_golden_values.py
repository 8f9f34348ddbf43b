"""PPO and MA-PPO against numbers worked out by hand: token rewards, GAE, targets, values, KL."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, pvariance

import pytest
import torch

from rlhf_lab.algos.a_lol import ALoL, RatioOf
from rlhf_lab.algos.ma_ppo import (
    RANDOM_TOKENS,
    MacroPPO,
    MacroValue,
    Termination,
    macro_actions,
)
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.algos.sao import SAO
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.types.data import PolicyOutput, ValueModel
from rlhf_lab.types.errors import UserError
from tests.support.examples import credited, gradient, group
from tests.support.golden import (
    AWAY,
    POLICY,
    REFERENCE,
    VALUE,
    cells,
    collated,
    flat,
    four_rows,
    loss_of,
    output_of,
    padded,
    pessimistic,
    two_prompts,
)

# kl_coef 0.1 at each token's log(behaviour / reference), and the score at the last one
TOKEN_REWARD = [
    [-0.1 * 0.5, -0.1 * -0.2, 1 - 0.1 * 0.2],
    [3 - 0.1 * 0.5],
    [-0.1 * 0.25, 2 - 0.1 * -0.1],
    [-0.1 * -0.5, -0.1 * 0.5, 0.5 - 0.1 * 0.2],
]
# gamma 0.9, lam 0.8, values as in golden.py; from the last token backwards:
# row 0: 0.98 + 0.3; 0.02 - 0.27 - 0.2 + 0.72 * 1.28; -0.05 + 0.18 - 0.5 + 0.72 * 0.4716
# row 2: 2.01 - 0.8; -0.025 + 0.72 - 0.4 + 0.72 * 1.21
# row 3: 0.48 - 0.3; -0.05 + 0.27 + 0.2 + 0.72 * 0.18; 0.05 - 0.18 - 0.1 + 0.72 * 0.5496
GAIN = [[-0.030448, 0.4716, 1.28], [1.95], [1.1662, 1.21], [0.165712, 0.5496, 0.18]]
TARGET = [[0.469552, 0.6716, 0.98], [2.95], [1.5662, 2.01], [0.265712, 0.3496, 0.48]]
# Three of these moved towards their target by more than 0.2: the clip bites. The last of row 0
# moved as far away from it: there the plain error is the larger one.
NEW_VALUE = [[0.45, 0.6, -0.8], [2.5], [0.5, 0.7], [0.1, 0.2, 0.3]]
CLIPPED_VALUE = [[0.45, 0.4, -0.8], [1.2], [0.5, 0.7], [0.1, 0.0, 0.3]]


def ppo() -> PPO:
    return PPO(kl_coef=0.1, gamma=0.9, lam=0.8, clip=0.2, value_clip=0.2, value_coef=0.5)


def macro_ppo(macro_tokens: int) -> MacroPPO:
    return MacroPPO(
        macro_tokens=macro_tokens,
        kl_coef=0.1,
        gamma=0.9,
        lam=0.8,
        clip=0.2,
        value_clip=0.2,
        value_coef=0.5,
    )


def white(values: list[float]) -> list[float]:
    """Zero mean, unit (population) variance."""
    return [(x - mean(values)) / math.sqrt(pvariance(values)) for x in values]


def test_the_advantages_and_targets_of_ppo_by_hand() -> None:
    plain = four_rows(replace(ppo(), whiten_advantages=False))
    assert cells(plain.credit_BT) == pytest.approx(flat(GAIN), abs=1e-6)
    assert cells(plain.target_BT) == pytest.approx(flat(TARGET), abs=1e-6)
    batch = four_rows(ppo())
    assert cells(batch.credit_BT) == pytest.approx(white(flat(GAIN)), abs=1e-5)
    # targets are those of the advantages before whitening
    assert cells(batch.target_BT) == pytest.approx(flat(TARGET), abs=1e-6)


def test_ppo_whitens_rewards_around_their_mean() -> None:
    algo = replace(ppo(), whiten_rewards=True, whiten_advantages=False, gamma=0.5, lam=0.0)
    batch = four_rows(algo)
    rewards = flat(TOKEN_REWARD)
    shifted = [x + mean(rewards) for x in white(rewards)]
    # with lam 0 an advantage is the reward, plus half the next value, less the present one
    following = [0.2, -0.3, 0.0, 0.0, 0.8, 0.0, -0.2, 0.3, 0.0]
    surprise = [
        r + 0.5 * after - v for r, after, v in zip(shifted, following, flat(VALUE), strict=True)
    ]
    assert cells(batch.credit_BT) == pytest.approx(surprise, abs=1e-5)


def test_the_loss_of_ppo_by_hand() -> None:
    batch = four_rows(ppo())
    advantage = white(flat(GAIN))
    policy_loss = -sum(
        pessimistic(math.exp(away), a, 0.2, 0.2)
        for away, a in zip(flat(AWAY), advantage, strict=True)
    )
    errors = [0.5 * (v - t) ** 2 for v, t in zip(flat(CLIPPED_VALUE), flat(TARGET), strict=True)]
    output = output_of(ppo(), POLICY, batch, NEW_VALUE)
    expected = policy_loss / 9 + 0.5 * sum(errors) / 9
    assert float(output.loss) == pytest.approx(expected, abs=1e-5)
    assert float(output.metrics["ppo/value_error"]) == pytest.approx(sum(errors) / 9, abs=1e-6)
    assert output.clipped_BT is not None
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    freely = [0.5 * (v - t) ** 2 for v, t in zip(flat(NEW_VALUE), flat(TARGET), strict=True)]
    loss = loss_of(replace(ppo(), value_clip=0.0), POLICY, batch, NEW_VALUE)
    assert loss == pytest.approx(policy_loss / 9 + 0.5 * sum(freely) / 9, abs=1e-5)


# lam_alpha 0.5: lambda is 1/3 of three tokens, and 0 of two and of one; the terms are as above.
# row 0: 1.28; -0.45 + 0.3 * 1.28; -0.37 - 0.3 * 0.066; row 3: 0.18; 0.42 + 0.3 * 0.18; ...
GAIN_BY_LENGTH = [[-0.3898, -0.066, 1.28], [1.95], [0.295, 1.21], [-0.0878, 0.474, 0.18]]
# value_lam 1: discounted rewards to go, whatever the values.
TARGET_OF_RETURNS = [[0.7618, 0.902, 0.98], [2.95], [1.784, 2.01], [0.3938, 0.382, 0.48]]


def sao() -> SAO:
    return SAO(
        kl_coef=0.1,
        gamma=0.9,
        lam_alpha=0.5,
        clip_low=0.2,
        clip_high=0.25,
        value_clip=0.0,
        value_coef=0.5,
        whiten_advantages=False,
    )


@pytest.mark.parametrize("algo", [sao(), replace(ppo(), lam_alpha=0.5, value_lam=1.0)])
def test_lambda_by_length_and_of_targets_by_hand(algo: SAO | PPO) -> None:
    batch = four_rows(replace(algo, whiten_advantages=False))
    assert cells(batch.credit_BT) == pytest.approx(flat(GAIN_BY_LENGTH), abs=1e-6)
    assert cells(batch.target_BT) == pytest.approx(flat(TARGET_OF_RETURNS), abs=1e-6)
    one_lam = four_rows(replace(algo, whiten_advantages=False, value_lam=-1.0))
    difference_BT = (one_lam.target_BT - one_lam.value_BT - one_lam.credit_BT) * one_lam.mask_BT
    assert float(difference_BT.abs().max()) < 1e-6


def test_macro_actions_of_one_token_have_the_same_lambdas() -> None:
    algo = replace(macro_ppo(1), lam_alpha=0.5, value_lam=1.0, whiten_advantages=False)
    batch = four_rows(algo)
    assert cells(batch.credit_BT) == pytest.approx(flat(GAIN_BY_LENGTH), abs=1e-6)
    assert cells(batch.target_BT) == pytest.approx(flat(TARGET_OF_RETURNS), abs=1e-6)
    # Two macro actions of row 0, one of each other row: the lengths are those of actions.
    longer = four_rows(replace(algo, macro_tokens=2))
    assert longer.credit_BT[0, 0] == longer.credit_BT[0, 1]


def test_the_loss_of_sao_by_hand_has_no_token_outside_the_interval() -> None:
    batch = four_rows(sao())
    output = output_of(sao(), POLICY, batch, NEW_VALUE)
    # 0.8 to 1.25: e^0.35 and e^-0.3 lie outside, whatever the sign of their advantage.
    inside = [0.8 < math.exp(away) < 1.25 for away in flat(AWAY)]
    assert output.clipped_BT is not None
    assert cells(output.clipped_BT) == [1, 0, 0, 1, 1, 0, 0, 1, 0]
    weighed = [
        math.exp(away) * a if is_inside else 0.0
        for away, a, is_inside in zip(flat(AWAY), flat(GAIN_BY_LENGTH), inside, strict=True)
    ]
    gain = sum(w * logp for w, logp in zip(weighed, flat(POLICY), strict=True))
    errors = [
        0.5 * (v - t) ** 2 for v, t in zip(flat(NEW_VALUE), flat(TARGET_OF_RETURNS), strict=True)
    ]
    assert float(output.loss) == pytest.approx((0.5 * sum(errors) - gain) / 9, abs=1e-5)
    by_logp_BT = gradient(sao(), POLICY, batch)
    assert cells(by_logp_BT) == pytest.approx([-w / 9 for w in weighed], abs=1e-6)


def test_a_clipped_value_is_not_moved_any_further() -> None:
    batch = four_rows(ppo())
    logp_BT = padded(POLICY, batch.mask_BT)
    value_BT = padded(NEW_VALUE, batch.mask_BT).requires_grad_()
    policy = PolicyOutput(logp_BT, torch.zeros_like(logp_BT), value_BT)
    ppo().loss(policy, batch).loss.backward()  # type: ignore[no-untyped-call]
    assert value_BT.grad is not None
    clipped = [False, True, False, True, False, False, False, True, False]
    by_hand = [
        0.0 if is_clipped else 0.5 * (v - t) / 9
        for is_clipped, v, t in zip(clipped, flat(NEW_VALUE), flat(TARGET), strict=True)
    ]
    assert cells(value_BT.grad) == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        (9.0, 1 + 0.2 * 100 / 1000),
        (6.6, 1 + 0.1 * 100 / 1000),
        (6.0, 1.0),
        (5.7, 1 - 0.05 * 100 / 1000),
        (1.0, 1 - 0.2 * 100 / 1000),
    ],
)
def test_the_kl_coefficient_of_ppo_follows_its_target(kl: float, factor: float) -> None:
    algo = PPO(kl_coef=0.05, kl_target=6.0, kl_horizon=1000)
    metrics = {"kl/sampled_reference_k1": kl}
    adapted = algo.adapted(metrics, num_samples=100)
    assert adapted.kl_coef == pytest.approx(0.05 * factor)
    assert replace(adapted, kl_coef=algo.kl_coef) == algo
    fixed = PPO(kl_coef=0.05)
    assert fixed.adapted(metrics, num_samples=100) == fixed


def test_ppo_asks_for_the_values_and_the_reference_that_it_is_told_to_use() -> None:
    assert PPO().needs.values is ValueModel.own
    assert PPO(shared_trunk=True).needs.values is ValueModel.shared
    assert PPO().needs.reference_every == 0
    moving = PPO(reference_decay=0.99).needs
    assert (moving.reference_every, moving.reference_decay) == (1, 0.99)


# Macro actions of two tokens; the last of rows 0 and 3, and all of row 1, are a single one.
# Their rewards: 0.02 - 0.05, 0.98; 2.95; 2.01 - 0.025; 0, 0.48. Values are those of first tokens.
# row 0: 0.98 + 0.3; -0.03 - 0.27 - 0.5 + 0.72 * 1.28
# row 2: 1.985 - 0.4
# row 3: 0.48 - 0.3; 0 + 0.27 - 0.1 + 0.72 * 0.18
MACRO_GAIN = [[0.1216, 0.1216, 1.28], [1.95], [1.585, 1.585], [0.2996, 0.2996, 0.18]]
MACRO_TARGET = [[0.6216, 0.0, 0.98], [2.95], [1.985, 0.0], [0.3996, 0.0, 0.48]]
# The product of its tokens' ratios: 0.35 - 0.05, -0.1; 0.35; -0.3 + 0.1; -0.05 - 0.3, -0.05
MACRO_AWAY = [[0.30, 0.30, -0.10], [0.35], [-0.20, -0.20], [-0.35, -0.35, -0.05]]


def test_the_advantages_and_targets_of_ma_ppo_by_hand() -> None:
    batch = four_rows(macro_ppo(2))
    assert cells(batch.credit_BT) == pytest.approx(white(flat(MACRO_GAIN)), abs=1e-5)
    assert cells(batch.target_BT) == pytest.approx(flat(MACRO_TARGET), abs=1e-6)


def test_the_loss_of_ma_ppo_by_hand() -> None:
    batch = four_rows(macro_ppo(2))
    advantage = white(flat(MACRO_GAIN))
    policy_loss = -sum(
        pessimistic(math.exp(away), a, 0.2, 0.2)
        for away, a in zip(flat(MACRO_AWAY), advantage, strict=True)
    )
    # first tokens only, once for each token of the macro action: value, target, tokens. New values
    # may leave old ones by 0.2: in row 1 the clip bites; in row 0 the last one moved away.
    error = 0.5 * sum(
        tokens * (value - target) ** 2
        for value, target, tokens in [
            *((0.45, 0.6216, 2), (-0.8, 0.98, 1)),
            (1.2, 2.95, 1),
            (0.5, 1.985, 2),
            *((0.1, 0.3996, 2), (0.3, 0.48, 1)),
        ]
    )
    output = output_of(macro_ppo(2), POLICY, batch, NEW_VALUE)
    assert float(output.loss) == pytest.approx(policy_loss / 9 + 0.5 * error / 9, abs=1e-5)
    assert output.clipped_BT is not None
    # row 1 above with positive credit, the first two of row 3 below with negative credit
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 1, 1, 0]


def test_a_macro_action_longer_than_every_response_is_the_whole_response() -> None:
    batch = four_rows(macro_ppo(100))
    # what a row earns less its first value: 0.95 - 0.5; 2.95 - 1; 1.985 - 0.4; 0.48 - 0.1
    by_hand = [0.45] * 3 + [1.95] + [1.585] * 2 + [0.38] * 3
    assert cells(batch.credit_BT) == pytest.approx(white(by_hand), abs=1e-5)


def test_macro_actions_of_one_token_are_ppo() -> None:
    one, many = ppo(), macro_ppo(1)
    reward_PG = rewards_of(two_prompts())
    credits = [algo.credit(reward_PG, collated()) for algo in (one, many)]
    assert torch.equal(credits[0].value_BT, credits[1].value_BT)
    assert credits[0].target_BT is not None and credits[1].target_BT is not None
    assert torch.equal(credits[0].target_BT, credits[1].target_BT)
    outputs = [output_of(algo, POLICY, four_rows(algo), NEW_VALUE) for algo in (one, many)]
    assert float(outputs[0].loss) == float(outputs[1].loss)
    assert outputs[0].clipped_BT is not None and outputs[1].clipped_BT is not None
    assert torch.equal(outputs[0].clipped_BT, outputs[1].clipped_BT)


# Behaviour falls at the second token of row 0 and of row 2, and at the third of row 3: rows 0 and 3
# are (1, 2) and (2, 1) tokens, row 2 is (1, 1).
def test_ma_ppo_ends_macro_actions_where_perplexity_rises() -> None:
    actions = macro_actions(Termination.perplexity, 5, collated())
    assert cells(actions.first_BT) == [1, 1, 0, 1, 1, 1, 1, 0, 1]
    algo = replace(macro_ppo(5), termination=Termination.perplexity, whiten_advantages=False)
    batch = four_rows(algo)
    # row 0: rewards -0.05; 0.02 + 0.98 = 1.0. 1.0 - 0.2; -0.05 + 0.9 * 0.2 - 0.5 + 0.72 * 0.8
    # row 3: rewards 0.0; 0.48. 0.48 - 0.3; 0 + 0.9 * 0.3 - 0.1 + 0.72 * 0.18
    gain = [[0.206, 0.8, 0.8], [1.95], [1.1662, 1.21], [0.2996, 0.2996, 0.18]]
    assert cells(batch.credit_BT) == pytest.approx(flat(gain), abs=1e-6)
    target = [[0.706, 1.0, 0.0], [2.95], [1.5662, 2.01], [0.3996, 0.0, 0.48]]
    assert cells(batch.target_BT) == pytest.approx(flat(target), abs=1e-6)


def test_turns_are_macro_actions_of_ma_ppo() -> None:
    """Turns of the lengths that the test before has give its numbers."""
    turn_BT = torch.tensor([[0, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    by_turn = replace(macro_ppo(5), termination=Termination.turn, whiten_advantages=False)
    # Without turns a response is one macro action, whose value is learned at its first token.
    plain = four_rows(by_turn)
    assert [bool(target) for target in cells(plain.target_BT)] == [
        *(True, False, False),
        *(True,),
        *(True, False),
        *(True, False, False),
    ]
    batch = replace(collated(), turn_BT=turn_BT)
    assert cells(macro_actions(Termination.turn, 5, batch).first_BT) == [1, 1, 0, 1, 1, 1, 1, 0, 1]
    made = credited(by_turn, two_prompts(), batch)[0]
    gain = [[0.206, 0.8, 0.8], [1.95], [1.1662, 1.21], [0.2996, 0.2996, 0.18]]
    assert cells(made.credit_BT) == pytest.approx(flat(gain), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "by_hand"),
    [
        # macro actions of two tokens: (0.5, 0.2), (-0.3); (1.0); (0.4, 0.8); (0.1, -0.2), (0.3)
        (MacroValue.first, [0.5, 0.5, -0.3, 1.0, 0.4, 0.4, 0.1, 0.1, 0.3]),
        (MacroValue.last, [0.2, 0.2, -0.3, 1.0, 0.8, 0.8, -0.2, -0.2, 0.3]),
        (MacroValue.equal, [0.35, 0.35, -0.3, 1.0, 0.6, 0.6, -0.05, -0.05, 0.3]),
        # shares of 2/3 and 1/3
        (MacroValue.position, [0.4, 0.4, -0.3, 1.0, 1.6 / 3, 1.6 / 3, 0.0, 0.0, 0.3]),
    ],
)
def test_the_values_of_macro_actions_by_hand(kind: MacroValue, by_hand: list[float]) -> None:
    batch = collated()
    value_BT = macro_actions(Termination.fixed, 2, batch).values(batch.value_BT, kind)
    assert cells(value_BT * batch.mask_BT) == pytest.approx(by_hand, abs=1e-6)


def test_random_macro_actions_depend_on_a_row_alone_and_have_the_published_lengths() -> None:
    tokens_BT = torch.arange(64 * 40).view(64, 40) % 97
    batch = collate([group(0, [[-1.0] * 40] * 64, [0.0] * 64)], 0)
    batch = replace(batch, response_BT=tokens_BT)
    actions = macro_actions(Termination.random, 5, batch)
    lengths = {int(x) for row in actions.index_BT for x in torch.bincount(row)[:-1]}
    assert lengths == set(RANDOM_TOKENS)
    alone = macro_actions(Termination.random, 5, batch.rows(torch.tensor([7])))
    assert torch.equal(alone.index_BT[0], actions.index_BT[7])


def test_a_lol_with_a_value_of_the_prompt_by_hand() -> None:
    # values of the prompts 0.5, 1, 0.4, 0.1 from rewards 1, 3, 2, 0.5; and one that is above
    algo = ALoL(value_baseline=True, ratio_of=RatioOf.none, reference_kl=0.5)
    batch = four_rows(algo)
    assert len(batch) == 4, "the value learns from every row"
    advantage = [0.5, 2.0, 1.6, 0.4]
    assert [float(x) for x in batch.credit_BT[:, 0]] == pytest.approx(advantage)
    assert cells(batch.target_BT) == [1, 0, 0, 3, 2, 0, 0.5, 0, 0]
    logp = [sum(row) for row in POLICY]
    away = [sum(row) - sum(ref) for row, ref in zip(POLICY, REFERENCE, strict=True)]
    likelihood = sum(-a * p + 0.5 * k for a, p, k in zip(advantage, logp, away, strict=True))
    # first values 0.45, 2.5, 0.5, 0.1
    error = 0.5 * (0.55**2 + 0.5**2 + 1.5**2 + 0.4**2)
    output = output_of(algo, POLICY, batch, NEW_VALUE)
    assert float(output.loss) == pytest.approx((likelihood + error) / 4, abs=1e-6)
    lower = replace(collated(), value_BT=collated().value_BT + 1)
    credit = algo.credit(rewards_of(two_prompts()), lower)
    assert credit.value_BT[:, 0].tolist() == pytest.approx([0.0, 1.0, 0.6, 0.0])


def test_a_lol_learns_values_first_and_then_freezes_them() -> None:
    plain = ALoL(value_baseline=True, ratio_of=RatioOf.none)
    algo = replace(plain, value_rounds=2)
    assert plain.at_round(0, 4) is plain
    batch = four_rows(algo)
    error = 0.5 * (0.55**2 + 0.5**2 + 1.5**2 + 0.4**2) / 4
    likelihood = loss_of(plain, POLICY, batch, NEW_VALUE) - error
    for round_, by_hand, learns in [
        *((0, error, (False, True)), (1, error, (False, True))),
        *((2, likelihood, (True, False)), (3, likelihood, (True, False))),
    ]:
        logp_BT = padded(POLICY, batch.mask_BT).requires_grad_()
        value_BT = padded(NEW_VALUE, batch.mask_BT).requires_grad_()
        policy = PolicyOutput(logp_BT, torch.zeros_like(logp_BT), value_BT)
        output = algo.at_round(round_, 4).loss(policy, batch)
        assert float(output.loss.detach()) == pytest.approx(by_hand, abs=1e-6)
        reported = float(output.metrics["ppo/value_error"].detach())
        assert reported == pytest.approx(error, abs=1e-6)
        output.loss.backward()  # type: ignore[no-untyped-call]
        moved = [x.grad is not None and bool(x.grad.any()) for x in (logp_BT, value_BT)]
        assert tuple(moved) == learns
        if round_ >= 2:
            assert value_BT.grad is None, "AdamW would move on after a gradient of zero"
    with pytest.raises(UserError, match=r"algo\.value_rounds=2 with algo.value_baseline=false"):
        ALoL(value_rounds=2)


def test_the_priority_of_a_lol_is_the_advantage_over_the_mean_positive_one() -> None:
    # group means leave 1 and 0.75, whose mean is 0.875
    batch = four_rows(ALoL(priority=True))
    by_hand = [1.0 / 0.875, 0.75 * 0.75 / 0.875]
    assert [float(x) for x in batch.credit_BT[:, 0]] == pytest.approx(by_hand)


def test_ppo_with_symlog_values_by_hand() -> None:
    # what the value model says is the symlog of these values, so that advantages are those of ppo()
    algo = replace(ppo(), symlog_values=True, whiten_advantages=False)
    batch = collated()
    squashed_BT = batch.value_BT.sign() * (1 + batch.value_BT.abs()).log()
    credit = algo.credit(rewards_of(two_prompts()), replace(batch, value_BT=squashed_BT))
    assert cells(credit.value_BT) == pytest.approx(flat(GAIN), abs=1e-5)
    assert credit.target_BT is not None and credit.return_BT is not None
    assert cells(credit.return_BT) == pytest.approx(flat(TARGET), abs=1e-5)
    # all targets are positive: log(1.469552), log(1.6716), ...
    assert cells(credit.target_BT) == pytest.approx([math.log1p(x) for x in flat(TARGET)], abs=1e-5)


def test_means_of_squashed_values_are_refused() -> None:
    with pytest.raises(UserError, match="with squashed values or bins"):
        MacroPPO(symlog_values=True, macro_value=MacroValue.equal)
