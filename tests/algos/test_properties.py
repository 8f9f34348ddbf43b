"""What holds for every algorithm, by parametrisation: new ones are covered the day they land."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.a_lol import ALoL
from rlhf_lab.algos.common import sequence_weight
from rlhf_lab.algos.distill import Direction, Distill, Signal
from rlhf_lab.algos.ma_ppo import MacroPPO, MacroValue, Termination
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.models.batching import collate, rewards_of, token_weights
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.types.data import Batch, Objective, PolicyOutput
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Group
from tests.support.examples import credited, group

ALGORITHMS = classes("algo")

NAMES = list(ALGORITHMS)
# Those whose gradient on-policy is the sum over a response's tokens; the others' is a token mean.
OF_RESPONSES = (
    *("reinforce", "remax", "rloo", "proximal_rloo", "copg", "kimi", "a_lol", "asymre", "tba"),
    *("best_of_n", "crpg", "vcpo"),
)
COMPARED = ("online_dpo", "online_ipo", "online_slic", "dpo", "best_of_n", "codpo", "crraft")
# Their credit is of the reference, which is the teacher: test_distill.py.
TAUGHT = ("distill",)
CREDITED = [name for name in NAMES if name not in (*COMPARED, *TAUGHT)]


VALUED = {"value_baseline": True, "priority": True, "reference_kl": 0.1}
# Forms of an algorithm that its defaults do not cover.
FORMS: dict[str, Algorithm] = {
    "a_lol valued": ALoL(**VALUED),  # type: ignore[arg-type]
    "distill by the policy": Distill(signal=Signal.policy),
    "distill reverse": Distill(kl=Direction.reverse),
    "distill forward": Distill(kl=Direction.forward),
}
FORMS.update(
    (f"ma_ppo {termination} {value}", MacroPPO(termination=termination, macro_value=value))
    for termination, value in [
        (Termination.random, MacroValue.equal),
        (Termination.perplexity, MacroValue.last),
        (Termination.perplexity, MacroValue.position),
        (Termination.turn, MacroValue.first),
    ]
)


def make(name: str) -> Algorithm:
    algo: Algorithm = FORMS.get(name) or ALGORITHMS[name]()
    return algo


def groups_of(count: int, seed: int = 0, equal: bool = False, prompt_len: int = 2) -> list[Group]:
    """Groups of three samples of 1 to 4 tokens, with random log-probs and rewards."""
    rng = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        logps = [(-torch.rand(1 + (number + k) % 4, generator=rng)).tolist() for k in range(3)]
        rewards = [1.0] * 3 if equal else torch.randn(3, generator=rng).tolist()
        found.append(group(number, logps, rewards, prompt_len + number % 2))
    return found


def noise(batch: Batch, seed: int, scale: float) -> Tensor:
    """Random numbers per row and place, the same whatever the padding."""
    rng = torch.Generator().manual_seed(seed)
    wide = torch.randn((len(batch), 16), generator=rng) * scale
    return wide[:, : batch.mask_BT.shape[1]] * batch.mask_BT


def judged(algo: Algorithm, groups: list[Group], off: float = 0.3) -> tuple[Batch, Tensor]:
    """The kept rows with credit and weights, and a policy's log-probs on them.

    off: how far policy and reference are from the behaviour.
    """
    batch = collate(groups, pad_id=0, limit=6)
    batch = replace(
        batch,
        reference_logp_BT=batch.behavior_logp_BT + noise(batch, 1, off),
        value_BT=noise(batch, 2, off),
    )
    policy_BT = batch.behavior_logp_BT + noise(batch, 3, off)
    kept, keep_B = credited(algo, groups, batch)
    return kept, policy_BT[keep_B]


def at_sampled_tokens(batch: Batch, logp_BT: Tensor, value_BT: Tensor) -> PolicyOutput:
    """A pass whose other tokens (Needs.top_tokens) are the sampled ones alone."""
    top_BTK, reference_BTK = logp_BT.unsqueeze(2), batch.reference_logp_BT.unsqueeze(2)
    return PolicyOutput(
        *(logp_BT, torch.zeros_like(logp_BT), value_BT),
        top_logp_BTK=top_BTK,
        reference_top_logp_BTK=reference_BTK,
    )


def pull(algo: Algorithm, batch: Batch, logp_BT: Tensor) -> tuple[float, Tensor, Tensor]:
    """Loss, and its gradient by log-probs and by values, BT each."""
    logp_BT = logp_BT.clone().requires_grad_()
    value_BT = (batch.value_BT + 0.1 * batch.mask_BT).detach().requires_grad_()
    loss = algo.loss(at_sampled_tokens(batch, logp_BT, value_BT), batch).loss
    loss.backward()  # type: ignore[no-untyped-call]
    assert logp_BT.grad is not None
    by_value_BT = torch.zeros_like(logp_BT) if value_BT.grad is None else value_BT.grad
    return float(loss.detach()), logp_BT.grad, by_value_BT


@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_micro_batches_leave_loss_and_gradient_unchanged(name: str) -> None:
    algo = make(name)
    batch, logp_BT = judged(algo, groups_of(6))
    loss, by_logp_BT, by_value_BT = pull(algo, batch, logp_BT)
    start, total = 0, 0.0
    for part in micro_batches(batch, max_rows=4):
        rows, width = slice(start, start + len(part)), part.mask_BT.shape[1]
        part_loss, part_logp, part_value = pull(algo, part, logp_BT[rows, :width])
        assert torch.allclose(part_logp, by_logp_BT[rows, :width], atol=1e-6)
        assert torch.allclose(part_value, by_value_BT[rows, :width], atol=1e-6)
        assert not by_logp_BT[rows, width:].any()
        start, total = start + len(part), total + part_loss
    assert start == len(batch)
    assert total == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_padding_and_prompts_change_nothing(name: str) -> None:
    algo = make(name)
    batch, logp_BT = judged(algo, groups_of(3))
    loss, by_logp_BT, _ = pull(algo, batch, logp_BT)
    longer, same_BT = judged(algo, groups_of(3, prompt_len=9))
    assert torch.equal(same_BT, logp_BT)
    wide = replace(
        longer,
        **{
            key: torch.nn.functional.pad(tensor, (0, 3))
            for key, tensor in vars(longer).items()
            if key.endswith("_BT")
        },
    )
    wide_BT = torch.nn.functional.pad(logp_BT, (0, 3))
    wide_loss, wide_by_logp_BT, _ = pull(algo, wide, wide_BT)
    assert wide_loss == pytest.approx(loss, abs=1e-6)
    assert torch.allclose(wide_by_logp_BT[:, :-3], by_logp_BT, atol=1e-7)
    assert not wide_by_logp_BT[:, -3:].any()


@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_permuting_groups_permutes_credit(name: str) -> None:
    algo, groups, order = make(name), groups_of(5), [3, 0, 4, 2, 1]
    batch = collate(groups, pad_id=0, limit=6)
    batch = replace(batch, value_BT=noise(batch, 2, 0.3), reference_logp_BT=noise(batch, 1, 0.3))
    rows = torch.tensor([3 * place + k for place in order for k in range(3)])
    credit = algo.credit(rewards_of(groups), batch)
    shuffled = algo.credit(rewards_of([groups[place] for place in order]), batch.rows(rows))
    assert torch.equal(shuffled.keep_B, credit.keep_B[rows])
    assert torch.allclose(shuffled.value_BT, credit.value_BT[rows], atol=1e-5)
    if credit.target_BT is not None and shuffled.target_BT is not None:
        assert torch.allclose(shuffled.target_BT, credit.target_BT[rows], atol=1e-5)


# crraft takes the likelihood of the best sample by its reward, whatever the others earn; the
# baseline of asymre is below what all samples of such a group earn.
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("crraft", "asymre")])
def test_equal_rewards_give_no_gradient(name: str) -> None:
    """At the reference, and where a value model says what the reward will be."""
    algo, groups = make(name), groups_of(4, equal=True)
    batch = collate(groups, pad_id=0, limit=6)
    batch = replace(batch, reference_logp_BT=batch.behavior_logp_BT, value_BT=batch.mask_BT.clone())
    credit = algo.credit(rewards_of(groups), batch)
    kept = replace(batch, credit_BT=credit.value_BT).rows(credit.keep_B)
    if not len(kept):
        assert name in (*COMPARED, "a_lol", "dapo"), "only these may drop a group"
        return
    kept = replace(kept, weight_BT=token_weights(kept, algo.reduction), target_BT=kept.mask_BT)
    _, by_logp_BT, _ = pull(algo, kept, kept.behavior_logp_BT)
    assert by_logp_BT.abs().max() < 1e-6


@pytest.mark.parametrize("name", CREDITED)
def test_on_policy_the_gradient_is_the_policy_gradient(name: str) -> None:
    """Minus credit, per token under the token weights or per response under the row's."""
    algo = make(name)
    batch, _ = judged(algo, groups_of(5), off=0.0)
    _, by_logp_BT, _ = pull(algo, batch, batch.behavior_logp_BT)
    expected_BT = -batch.credit_BT * batch.weight_BT
    if name in OF_RESPONSES:
        expected_BT = -batch.credit_BT * sequence_weight(batch).unsqueeze(1)
    if name == "ma_ppo":  # each token moves the ratio of its whole macro action
        for start in range(0, batch.mask_BT.shape[1], 5):
            macro = expected_BT[:, start : start + 5].sum(dim=1, keepdim=True)
            expected_BT[:, start : start + 5] = macro
        expected_BT = expected_BT * batch.mask_BT
    assert torch.allclose(by_logp_BT, expected_BT, atol=1e-6)
    assert by_logp_BT.abs().max() > 1e-3


@pytest.mark.parametrize("name", [*CREDITED, *TAUGHT])
def test_on_policy_the_ratio_is_exactly_one(name: str) -> None:
    """Whatever the sampling said, bit for bit: nothing is clipped, and no weight moves."""
    algo = make(name)
    batch, _ = judged(algo, groups_of(5))
    policy = PolicyOutput(
        batch.proximal_logp_BT, torch.zeros_like(batch.mask_BT), batch.value_BT.clone()
    )
    output = algo.loss(policy, batch)
    if output.clipped_BT is not None:
        assert not output.clipped_BT.any()
    if algo.objective in (Objective.token_ratio, Objective.sequence_ratio):
        moved = replace(
            batch,
            behavior_logp_BT=batch.behavior_logp_BT - 1,
            proximal_logp_BT=batch.proximal_logp_BT - 1e-3 * batch.mask_BT,
        )
        assert float(algo.loss(policy, moved).loss) != float(output.loss), "proximal is looked at"
        behind = replace(batch, behavior_logp_BT=batch.behavior_logp_BT - 1)
        assert float(algo.loss(policy, behind).loss) == float(output.loss)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TAUGHT])
def test_better_rewarded_samples_become_likelier(name: str) -> None:
    algo = make(name)
    groups = [group(0, [[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0]], [0.0, 1.0, 0.5])]
    batch, logp_BT = judged(algo, groups, off=0.0)
    _, by_logp_BT, _ = pull(algo, batch, logp_BT)
    rewards = rewards_of(groups).flatten()
    best = rewards.argmax() if len(batch) == 3 else torch.tensor(len(batch) - 1)
    if name in ("online_dpo", "online_ipo", "online_slic", "dpo", "codpo", "remax"):
        best = torch.tensor(1)
    if name in ("best_of_n", "crraft", "a_lol"):
        best = torch.tensor(0)
    assert bool((by_logp_BT[best] < 0).all())
    if len(batch) > 1:
        assert bool((by_logp_BT[0] > 0).all())


def test_a2c_is_ppo_with_one_pass_and_no_clipping() -> None:
    """arXiv:2205.09123: at the first pass PPO's gradient is that of A2C, for policy and values."""
    algo = PPO(lam=1.0, whiten_advantages=False, value_clip=0.0, value_coef=0.5)
    batch, _ = judged(algo, groups_of(5))
    _, by_logp_BT, by_value_BT = pull(algo, batch, batch.behavior_logp_BT)
    logp_BT = batch.behavior_logp_BT.clone().requires_grad_()
    value_BT = (batch.value_BT + 0.1 * batch.mask_BT).detach().requires_grad_()
    # A2C: return less value weighs the log-prob, and the value regresses on the return.
    advantage_BT = (batch.target_BT - batch.value_BT) * batch.mask_BT
    actor_BT = -advantage_BT * logp_BT
    critic_BT = 0.5 * (value_BT - batch.target_BT).square() * batch.mask_BT
    a2c = ((actor_BT + 0.5 * critic_BT) * batch.weight_BT).sum()
    a2c.backward()  # type: ignore[no-untyped-call]
    assert logp_BT.grad is not None and value_BT.grad is not None
    assert torch.allclose(by_logp_BT, logp_BT.grad, atol=1e-7)
    assert torch.allclose(by_value_BT, value_BT.grad, atol=1e-7)
    assert by_value_BT.abs().max() > 1e-3
