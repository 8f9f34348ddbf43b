"""Training on episodes: an engine's numbers at the policy's tokens, its updates, and credit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.distill import Direction, Distill
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.algos.ppo import PPO
from rlhf_lab.models.batching import collate, rewards_of, token_weights
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rewards.data_rewards import EnvironmentScorer
from rlhf_lab.training.batch_builder import count_tokens
from rlhf_lab.training.engines import microbatches
from rlhf_lab.training.engines.options import EngineOptions, SingleEngineOptions
from rlhf_lab.training.stages.options import LossOn
from rlhf_lab.training.stages.supervised import counted
from rlhf_lab.types.data import Batch, Reduction
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Group
from tests.support.engine_cases import ALGOS, RATE, engine, head_weights, policy, rows_of
from tests.support.environments import acted, prompt
from tests.support.episode_rows import manual_logps, manual_values, ragged

pytestmark = pytest.mark.usefixtures("costly")

PLAIN = SingleEngineOptions(micro_rows=64, logit_tokens=0, share_prompts=False)
# How an engine reads rows, and with which options.
READS: dict[str, EngineOptions] = {
    "padded": PLAIN,
    "packed": replace(PLAIN, share_prompts=True),
    "single-causal": PLAIN,
    "single-blocks": replace(PLAIN, share_prompts=True),
    "chunks": replace(PLAIN, logit_tokens=3),
    "packed chunks": replace(PLAIN, share_prompts=True, logit_tokens=3),
    "rows": replace(PLAIN, micro_rows=2),
    "like lengths": replace(PLAIN, micro_rows=4, micro_tokens=60),
}


@contextmanager
def reading(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packed rows are packed whether or not that is cheaper."""
    if kind.startswith("packed"):
        monkeypatch.setattr(microbatches, "packing_is_cheaper", lambda *given: True)
    with rows_of(kind if kind.startswith("single") else "single"):
        yield


def moved(made: Any) -> Any:
    """The policy of an engine after an update; its reference has not moved."""
    batch = weighted(ragged(seed=5), ALGOS["online_dpo"])
    made.update(batch, GRPO(kl_coef=0.0), NoCorrection(), RATE)
    model = policy()
    load_weights(model, made.weights(1))
    return model


def weighted(groups: list[Group], algo: Algorithm) -> Batch:
    """Rows with credit of both signs."""
    batch = collate(groups, pad_id=0)
    sign_B1 = torch.tensor([-1.0, 1.0]).repeat(len(groups)).unsqueeze(1)
    batch = replace(batch, credit_BT=sign_B1 * batch.mask_BT)
    return replace(batch, weight_BT=token_weights(batch, algo.reduction))


@pytest.mark.parametrize("kind", list(READS))
@pytest.mark.parametrize("algo", ["ppo", "ppo_bins"])
def test_an_engine_reads_what_a_pass_over_each_text_finds(
    kind: str, algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ragged()
    batch = collate(groups, pad_id=0)
    values = value_model_like(policy(), False, ALGOS[algo].needs.bins)
    with torch.no_grad():
        (weight,) = values.score.parameters()
        weight.copy_(head_weights(weight))
    with reading(kind, monkeypatch):
        made = engine(READS[kind], algo)
        found_BT = made.values(batch)
        before_BT = made.reference_logp(batch)
        now = moved(made)
        after_BT = made.logp(batch, made.weights(1))
        reference_BT = made.reference_logp(batch)
    with torch.no_grad():
        expected_BT = manual_values(values, groups)
        torch.testing.assert_close(found_BT, expected_BT, atol=2e-5, rtol=1e-5)
        first_BT, second_BT = (manual_logps(model, groups, 0.7) for model in (policy(), now))
    assert not torch.allclose(first_BT, second_BT, atol=1e-2)
    for one_BT, other_BT in (
        (before_BT, first_BT),
        (reference_BT, first_BT),
        (after_BT, second_BT),
    ):
        torch.testing.assert_close(one_BT, other_BT, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["padded", "packed", "packed chunks", "rows", "like lengths"])
def test_an_update_is_that_of_a_loss_over_the_policys_tokens(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, model = ragged(), policy()
    batch, loss = counted(collate(groups, pad_id=0), LossOn.response)
    num_tokens = sum(len(sample.tokens) for group in groups for sample in group.samples)
    expected = -manual_logps(model, groups, 0.7).sum() / num_tokens
    expected.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    with reading(kind, monkeypatch):
        done = engine(READS[kind], "online_dpo").update(batch, loss, NoCorrection(), RATE)
    assert done.metrics["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert done.metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)


@pytest.mark.parametrize("kind", ["packed", "chunks", "rows", "like lengths"])
@pytest.mark.parametrize(
    "algo",
    [ALGOS["ppo_bins"], Distill(kl=Direction.reverse, top_k=4), Distill(kl=Direction.forward)],
    ids=["bins", "likeliest tokens", "all tokens"],
)
def test_what_saves_memory_changes_no_update_of_episodes(
    kind: str, algo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where losses read bins of values, or the reference's likeliest tokens."""
    name = "ppo_bins" if algo.name == "ppo" else "online_dpo"
    found = []
    for how in ("padded", kind):
        with reading(how, monkeypatch):
            made = engine(READS[how], name)
            moved(made)
            batch = weighted(ragged(), algo)
            batch = replace(batch, reference_logp_BT=made.reference_logp(batch))
            found.append(made.update(batch, algo, NoCorrection(), RATE))
    first, second = found
    assert second.metrics["loss"] == pytest.approx(first.metrics["loss"], abs=1e-5)
    assert second.metrics["grad_norm"] == pytest.approx(first.metrics["grad_norm"], rel=1e-3)
    for column, value_B in first.rows.items():
        torch.testing.assert_close(second.rows[column], value_B, atol=1e-4, rtol=1e-4)


def test_the_gradient_of_an_episodes_ratio_is_that_of_its_own_tokens() -> None:
    groups, model = ragged(2), policy()
    found_B = engine(PLAIN, "online_dpo").ratio_gradients(collate(groups, pad_id=0))
    expected = []
    single = [replace(group, samples=(sample,)) for group in groups for sample in group.samples]
    for alone in single:
        model.zero_grad()
        ratio = (manual_logps(model, [alone], 0.7) + 1.0).sum()
        ratio.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        expected.append(float(ratio.detach() + norm.log()))
    assert found_B.tolist() == pytest.approx(expected, rel=1e-4)


def credited(observed: list[tuple[int, tuple[int, ...]]], algo: PPO) -> tuple[Tensor, Tensor]:
    """Advantages and targets of an episode of two turns, of two tokens each. The calculator costs
    a quarter, and the answer gives one."""
    sample = acted([5, 6, 7, 8], observed, turns=[(1, -0.25), (3, 1.0)])
    (group,) = EnvironmentScorer().scored([Group(prompt(), (sample,))])
    batch = collate([group], pad_id=0)
    batch = replace(batch, value_BT=torch.tensor([[0.5, 0.25, 0.5, 0.75]]))
    credit = algo.credit(rewards_of([group]), batch)
    assert credit.target_BT is not None
    return credit.value_BT, credit.target_BT


@pytest.mark.parametrize("observed", [[], [(2, (20,))], [(0, (21,) * 5), (2, (20, 22, 23))]])
def test_credit_passes_over_observations(observed: list[tuple[int, tuple[int, ...]]]) -> None:
    plain = PPO(kl_coef=0.0, whiten_advantages=False, gamma=1.0, lam=1.0)
    gain_BT, target_BT = credited(observed, plain)
    # What is still to come: 0.75, 0.75, 1 and 1, less the values.
    assert gain_BT.tolist() == [[0.25, 0.5, 0.5, 0.25]]
    assert target_BT.tolist() == [[0.75, 0.75, 1.0, 1.0]]
    # Errors of single steps: -0.25, 0, 0.25 and 0.25; each counts half as much a token earlier.
    gain_BT, target_BT = credited(observed, replace(plain, lam=0.5))
    assert gain_BT.tolist() == [[-0.15625, 0.1875, 0.375, 0.25]]
    assert target_BT.tolist() == [[0.34375, 0.4375, 0.875, 1.0]]


def test_token_weights_count_no_observation() -> None:
    groups = ragged()
    bare = [
        replace(group, samples=tuple(replace(sample, episode=None) for sample in group.samples))
        for group in groups
    ]
    with_text, without = collate(groups, pad_id=0), collate(bare, pad_id=0)
    for reduction in Reduction:
        weight_BT = token_weights(with_text, reduction)
        assert torch.equal(weight_BT, token_weights(without, reduction))
    read = sum(len(group.prompt.tokens) * len(group.samples) for group in groups)
    read += sum(len(sample.all_tokens) for group in groups for sample in group.samples)
    assert count_tokens(with_text) == read > count_tokens(without)
