"""Responses that share the reading of their prompt: the same numbers, and only where it pays."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import TokenRows, token_rows
from rlhf_lab.models.shared_prompts import is_packable, packed, packing_is_cheaper
from rlhf_lab.models.value_model import value_model_like
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

SHAPE = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
MODELS = {
    "neox": (GPTNeoXForCausalLM, GPTNeoXConfig, {}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 2}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"num_key_value_heads": 2}),
}


def model(kind: str, attention: str = "sdpa") -> Any:
    made, config, extra = MODELS[kind]
    torch.manual_seed(1)
    chosen = config(**SHAPE, **extra, attn_implementation=attention)
    return made(chosen).eval()


def group(number: int, prompt: list[int], *responses: list[int]) -> Group:
    samples = tuple(Sample(tuple(r), (-1.0,) * len(r), 0, Finish.eos, "") for r in responses)
    return Group(Prompt(number, tuple(prompt), Example("", "", "")), samples)


def uneven() -> TokenRows:
    """Groups of three, one and two responses; prompts and responses of all lengths."""
    return token_rows(
        collate(
            [
                group(0, [5, 6, 7, 8], [1, 2, 3], [4], [9, 9, 9, 2, 2]),
                group(1, [7, 7], [3, 3]),
                group(2, [4, 3, 2], [8, 8, 8, 8], [8, 1]),
            ],
            pad_id=0,
        )
    )


def everything(
    networks: PolicyWithValues, kind: PassKind, chunks: int
) -> tuple[list[Tensor], list[Tensor]]:
    """What is read of the uneven groups, and the gradients of its weighted sum."""
    found = networks(uneven(), kind, PassLayout(chunks, is_packed=True))
    given = [part for part in found if part is not None]
    networks.zero_grad()
    place_BT = torch.arange(given[0].numel()).view_as(given[0]) + 1.0
    loss = torch.stack([(p * place_BT).sum() for p in given if p.requires_grad]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in networks.parameters() if p.grad is not None]
    return [part.detach() for part in given], gradients


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("values", ["none", "own", "shared"])
def test_packed_rows_say_what_plain_rows_say(kind: str, attention: str, values: str) -> None:
    policy = model(kind, attention)
    network = None if values == "none" else value_model_like(policy, is_shared=values == "shared")
    if network is not None:
        for parameter in network.score.parameters():
            torch.nn.init.normal_(parameter)
    both = [
        PolicyWithValues(*copy.deepcopy((policy, network)), 0.7, shares) for shares in (True, False)
    ]
    assert [networks.is_packable for networks in both] == [True, False]
    kind = PassKind.policy if network is None else PassKind.both
    for chunks in (1, 3):
        (mine, gradients), (plain, expected) = (everything(a, kind, chunks) for a in both)
        for one, other in zip([*mine, *gradients], [*plain, *expected], strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))


def test_a_response_sees_its_prompt_and_itself_alone() -> None:
    rows = token_rows(collate([group(0, [5, 6], [1, 2], [3, 4])], pad_id=0))
    pack = packed(rows)
    assert pack.token_PL.tolist() == [[5, 6, 1, 2, 3, 4]]
    assert pack.position_PL.tolist() == [[0, 1, 2, 3, 2, 3]]
    # The states before 1, 2, 3 and 4: those of the prompt's end, of 1, of the prompt's end, of 3.
    assert pack.column_N.tolist() == [1, 2, 1, 4]
    assert pack.may_see_P1LL[0, 0].int().tolist() == [
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
    seen = pack.may_see_P1LL[:, 0] & ~own
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
