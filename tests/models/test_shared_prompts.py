"""Responses that share the reading of their prompt: the same numbers, and only where it pays."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import GPTNeoXModel, MistralConfig, MistralForCausalLM

from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import token_rows
from rlhf_lab.models.right_padded import takes_right_padded
from rlhf_lab.models.shared_prompts import is_packable, packed, packing_is_cheaper, visible
from rlhf_lab.training.engines.policy_with_values import PassKind, PolicyWithValues
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


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("values", VALUES)
def test_packed_rows_say_what_plain_rows_say(kind: str, attention: str, values: str) -> None:
    policy = model(kind, attention)
    network = value_network(policy, values)
    both = [
        PolicyWithValues(*copy.deepcopy((policy, network)), 0.7, shares) for shares in (True, False)
    ]
    assert [networks.is_packable for networks in both] == [True, False]
    kind = PassKind.policy if network is None else PassKind.both
    for chunks in (1, 3):
        (mine, gradients), (plain, expected) = (everything(a, kind, chunks) for a in both)
        assert_alike([*mine, *gradients], [*plain, *expected])


def test_a_response_sees_its_prompt_and_itself_alone() -> None:
    rows = token_rows(collate([group(0, [5, 6], [1, 2], [3, 4])], pad_id=0))
    pack = packed(rows)
    assert pack.token_PL.tolist() == [[5, 6, 1, 2, 3, 4]]
    assert pack.position_PL.tolist() == [[0, 1, 2, 3, 2, 3]]
    # The states before 1, 2, 3 and 4: those of the prompt's end, of 1, of the prompt's end, of 3.
    assert pack.column_N.tolist() == [1, 2, 1, 4]
    assert visible(pack.segment_PL)[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]


def test_padding_is_seen_by_nobody_else() -> None:
    pack = packed(uneven())
    is_text_PL = torch.zeros_like(pack.token_PL, dtype=torch.bool)
    is_text_PL[:, :4] = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]], dtype=torch.bool)
    # Nine, two and six tokens of response follow the prompts.
    for row, length in enumerate((9, 2, 6)):
        is_text_PL[row, 4 : 4 + length] = True
    own = torch.eye(pack.token_PL.shape[1], dtype=torch.bool)
    seen = visible(pack.segment_PL)[:, 0] & ~own
    assert not seen.any(dim=1)[~is_text_PL].any()


@pytest.mark.parametrize(
    ("prompt", "responses", "length", "pays"),
    [
        # 1 * 108 * (96 + 108) = 22,032 against 4 * 72 * (96 + 72) = 48,384.
        (60, 4, 12, True),
        # 1 * 801 * (96 + 801) = 718,497 against 8 * 101 * (96 + 101) = 159,176.
        (1, 8, 100, False),
        (60, 1, 12, False),
    ],
)
def test_rows_are_packed_only_where_it_costs_less(
    prompt: int, responses: int, length: int, pays: bool
) -> None:
    rows = collate([group(0, [1] * prompt, *([[2] * length] * responses))], pad_id=0)
    assert packing_is_cheaper(token_rows(rows), hidden_size=16) is pays


def test_models_that_cannot_take_any_mask_are_found_out() -> None:
    assert is_packable(model("llama").base_model)
    windowed = MistralForCausalLM(MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=16))
    assert not is_packable(windowed.eval().base_model)
    deaf = model("neox")
    # One that reads its mask as the plain ones are read: every token of the row is a neighbour.
    deaf.base_model.register_forward_pre_hook(
        lambda module, given, named: (given, {**named, "attention_mask": None}), with_kwargs=True
    )
    assert not is_packable(deaf.base_model)


class Deaf(GPTNeoXModel):  # type: ignore[misc]
    """One that reads no mask."""

    def forward(self, *given: Any, attention_mask: Any = None, **named: Any) -> Any:
        return super().forward(*given, **named)


def test_models_of_half_precision_are_tested_in_whole() -> None:
    """Their rounding alone would hide that they see other tokens."""
    whole = [model(kind).bfloat16().base_model for kind in MODELS]
    deaf = Deaf(model("neox").config)
    state = torch.get_rng_state()
    assert all(is_packable(body) and takes_right_padded(body) for body in whole)
    assert not is_packable(deaf)
    assert not is_packable(copy.deepcopy(deaf).bfloat16())
    assert torch.equal(torch.get_rng_state(), state)
