"""Small models of several families, and uneven groups that they read in several ways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import TokenRows, token_rows
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
    networks: PolicyWithValues, kind: PassKind, chunks: int, is_packed: bool = True
) -> tuple[list[Tensor], list[Tensor]]:
    """What is read of the uneven groups, and the gradients of its weighted sum."""
    found = networks(uneven(), kind, PassLayout(chunks, is_packed))
    given = [part for part in found if part is not None]
    networks.zero_grad()
    place_BT = torch.arange(given[0].numel()).view_as(given[0]) + 1.0
    loss = torch.stack([(p * place_BT).sum() for p in given if p.requires_grad]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in networks.parameters() if p.grad is not None]
    return [part.detach() for part in given], gradients


def value_network(policy: Any, kind: str) -> Any:
    """A value model of random values: none, with its own body, or shared."""
    if kind == "none":
        return None
    network = value_model_like(policy, is_shared=kind == "shared")
    for parameter in network.score.parameters():
        torch.nn.init.normal_(parameter)
    return network


def assert_alike(mine: list[Tensor], plain: list[Tensor], relative: float = 2e-5) -> None:
    """Equal up to rounding of a pass."""
    for one, other in zip(mine, plain, strict=True):
        atol = relative * float(other.abs().max())
        assert torch.allclose(one, other, rtol=5 * relative, atol=atol)
