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
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.types.data import Bins
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


BINS = Bins(3, -1.0, 2.0)
VALUES = ["none", "own", "shared", "own bins", "shared bins"]


def everything(
    networks: PolicyWithValues, kind: PassKind, chunks: int, is_packed: bool = True
) -> tuple[list[Tensor], list[Tensor]]:
    """What is read of the uneven groups, and the gradients of its weighted sum."""
    found = networks(uneven(), kind, PassLayout(chunks, is_packed))
    given = [part for part in found if part is not None]
    networks.zero_grad()
    placed = [(p, torch.arange(p.numel()).view_as(p) + 1.0) for p in given if p.requires_grad]
    loss = torch.stack([(part * place).sum() for part, place in placed]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in networks.parameters() if p.grad is not None]
    return [part.detach() for part in given], gradients


def value_network(policy: Any, kind: str) -> Any:
    """A value model of random values: none, with its own body or shared, and then perhaps bins."""
    if kind == "none":
        return None
    bins = BINS if kind.endswith("bins") else None
    network = value_model_like(policy, kind.startswith("shared"), bins)
    for parameter in network.score.parameters():
        torch.nn.init.normal_(parameter)
    return network


def assert_alike(mine: list[Tensor], plain: list[Tensor], relative: float = 2e-5) -> None:
    """Equal up to rounding of a pass."""
    for one, other in zip(mine, plain, strict=True):
        atol = relative * float(other.abs().max())
        assert torch.allclose(one, other, rtol=5 * relative, atol=atol)
