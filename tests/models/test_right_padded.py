"""Rows without a mask: torch gets none, the numbers are those of padded rows, and padding around a
row changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from rlhf_lab.models.adapters import with_adapters
from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import token_rows
from rlhf_lab.models.options import Lora
from rlhf_lab.models.reward_model import reward_model_from
from rlhf_lab.models.right_padded import (
    has_prompts,
    is_causal,
    right_padded,
    right_padded_states,
    stores_no_masks,
    takes_right_padded,
)
from rlhf_lab.rewards import model as reward_model
from rlhf_lab.training.engines.policy_with_values import (
    PassKind,
    PassLayout,
    PolicyWithValues,
    Rows,
)
from rlhf_lab.training.stages.supervised import whole_sequence
from tests.support.attention_cases import (
    MODELS,
    SHAPE,
    VALUES,
    assert_alike,
    everything,
    group,
    model,
    uneven,
    value_network,
)

CPU = torch.device("cpu")


def causal(policy: Any, values: Any = None, shares_prompts: bool = False) -> PolicyWithValues:
    """Networks that read as they would on a GPU."""
    return PolicyWithValues(policy, values, 0.7, shares_prompts, maskless_on=CPU)


def test_only_gpus_get_rows_without_a_mask() -> None:
    assert not stores_no_masks(CPU)
    assert stores_no_masks(torch.device("cuda", 1))


@pytest.mark.parametrize("kind", list(MODELS))
def test_torch_gets_no_mask_and_may_take_flash(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    networks = causal(model(kind), value_network(model(kind), "own"))
    assert networks.plain_rows is Rows.causal
    real = torch.nn.functional.scaled_dot_product_attention
    calls: list[dict[str, Any]] = []

    def recorded(*tensors: Any, **named: Any) -> Any:
        calls.append(named)
        return real(*tensors, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    networks(uneven(), PassKind.both, PassLayout(1, is_packed=False))
    assert len(calls) == 2 * SHAPE["num_hidden_layers"]
    assert all(call["attn_mask"] is None and call["is_causal"] for call in calls)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("values", VALUES)
def test_rows_without_a_mask_are_those_with_one(kind: str, attention: str, values: str) -> None:
    policy = model(kind, attention)
    pair = (policy, value_network(policy, values))
    mine, plain = causal(*copy.deepcopy(pair)), PolicyWithValues(*copy.deepcopy(pair), 0.7)
    assert [networks.plain_rows for networks in (mine, plain)] == [Rows.causal, Rows.padded]
    kind = PassKind.policy if values == "none" else PassKind.both
    for chunks in (1, 3):
        found, gradients = everything(mine, kind, chunks, is_packed=False)
        expected, expected_gradients = everything(plain, kind, chunks, is_packed=False)
        assert_alike([*found, *gradients], [*expected, *expected_gradients])


def test_adapters_learn_the_same_without_a_mask() -> None:
    policy = with_adapters(model("llama"), Lora(2, 4.0, ["q_proj", "v_proj"]), seed=3)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    mine, plain = causal(copy.deepcopy(policy)), PolicyWithValues(policy, None, 0.7)
    results = [everything(networks, PassKind.policy, 2, False) for networks in (mine, plain)]
    assert results[0][1]
    mine_found, plain_found = ([*found, *gradients] for found, gradients in results)
    assert_alike(mine_found, plain_found)


def test_prompts_move_to_the_left_edge() -> None:
    groups = [group(0, [5, 6, 7], [1]), group(1, [4], [2, 3, 9])]
    rows = right_padded(token_rows(collate(groups, pad_id=0)))
    assert rows.token_BL.tolist() == [[5, 6, 7, 1], [4, 2, 3, 9]]
    assert rows.row_N.tolist() == [0, 1, 1, 1]
    assert rows.column_N.tolist() == [2, 0, 1, 2]


def test_rows_whose_loss_counts_the_prompt_keep_their_masks() -> None:
    """Their first tokens follow padding, which only rows with a mask have before them."""
    groups = [group(0, [5, 6, 7], [1]), group(1, [4], [2, 3, 9])]
    rows = token_rows(whole_sequence(collate(groups, pad_id=0)))
    assert not has_prompts(rows)
    assert has_prompts(uneven())
    layout = PassLayout(1, is_packed=False)
    mine, plain = causal(model("llama")), PolicyWithValues(model("llama"), None, 0.7)
    with torch.no_grad():
        found, expected = (n(rows, PassKind.policy, layout)[0] for n in (mine, plain))
    assert torch.equal(found, expected)


def test_a_reference_reads_as_its_policy_does() -> None:
    networks = causal(model("neox"), value_network(model("neox"), "own"), shares_prompts=True)
    frozen = networks.reference(copy.deepcopy(networks.policy))
    assert frozen.values is None
    assert (frozen.plain_rows, frozen.is_packable) == (Rows.causal, True)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert all(parameter.requires_grad for parameter in networks.parameters())
    layout = PassLayout(1, is_packed=False)
    first, second = (n(uneven(), PassKind.policy, layout)[0] for n in (networks, frozen))
    assert torch.equal(first, second)


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_row_does_not_depend_on_the_padding_around_it(kind: str) -> None:
    """By the bit where shapes are the same; a wider neighbour may change the order of sums in a
    product of matrices, and nothing else."""
    body = causal(model(kind)).policy.base_model.double()
    mine = group(0, [5, 6, 7], [1, 2, 3, 4])

    def states(token: int, prompt: int, response: int) -> Tensor:
        other = group(1, [token] * prompt, [token] * response)
        return right_padded_states(body, token_rows(collate([mine, other], pad_id=0)))[:4]

    with torch.no_grad():
        expected = states(8, 2, 3)
        assert torch.equal(states(9, 4, 1), expected)
        for prompt, response in ((1, 12), (12, 1), (20, 30)):
            found = states(8, prompt, response)
            assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_windows_need_masks_of_their_own_and_no_others() -> None:
    windowed = MistralForCausalLM(MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=3))
    mine, plain = causal(copy.deepcopy(windowed)), PolicyWithValues(windowed, None, 0.7)
    assert mine.plain_rows is Rows.causal
    results = [everything(networks, PassKind.policy, 1, False) for networks in (mine, plain)]
    mine_found, plain_found = ([*found, *gradients] for found, gradients in results)
    assert_alike(mine_found, plain_found)


def test_models_that_see_what_follows_keep_their_masks() -> None:
    sighted = model("llama")
    sighted.config.is_causal = False
    assert not is_causal(sighted.config)
    assert causal(sighted).plain_rows is Rows.padded
    confused = model("neox")
    # One whose tokens know of those that follow, though its config says nothing of that.
    confused.base_model.embed_in.register_forward_hook(
        lambda module, given, out: out + out.mean(dim=1, keepdim=True)
    )
    assert not takes_right_padded(confused.base_model)


def test_the_saved_config_names_no_attention() -> None:
    policy = model("llama")
    before = policy.config.to_dict()
    causal(policy)
    assert policy.config.to_dict() == before


@pytest.mark.parametrize("kind", list(MODELS))
def test_reward_models_score_the_same_without_a_mask(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_of_rewards = reward_model_from(model(kind), seed=1)
    rows = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
    with torch.no_grad():
        plain = reward_model.last_token_scores(model_of_rewards, rows)
        monkeypatch.setattr(reward_model, "stores_no_masks", lambda device: True)
        masks: list[Any] = []
        model_of_rewards.base_model.register_forward_pre_hook(
            lambda module, given, named: masks.append(named["attention_mask"]), with_kwargs=True
        )
        found = reward_model.last_token_scores(model_of_rewards, rows)
    assert masks == [None]
    assert_alike([found], [plain])
