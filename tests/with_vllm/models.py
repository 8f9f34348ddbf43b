"""Tiny policies of two architectures, with a tokenizer that needs no file."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from rlhf_lab.types.data import Weights
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt

VOCABULARY = 96
SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": 0,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "initializer_range": 0.2,
}


def tokenizer() -> Any:
    words = {"<eos>": 0, "<pad>": 1, **{f"w{n}": n for n in range(2, VOCABULARY)}}
    plain = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<eos>", pad_token="<pad>")


def policy(kind: str, is_tied: bool) -> Any:
    torch.manual_seed(3)
    shape = {**SHARED, "tie_word_embeddings": is_tied}
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(num_key_value_heads=1, **shape)).eval()
    return GPTNeoXForCausalLM(GPTNeoXConfig(rotary_pct=0.26, **shape)).eval()


def version(model: Any, number: int, change: float = 0.0) -> Weights:
    """The model's weights with noise of this size, drawn by the version's number."""
    rng = torch.Generator().manual_seed(number)
    state = {
        name: tensor.detach() + change * torch.randn(tensor.shape, generator=rng)
        for name, tensor in model.named_parameters()
    }
    return Weights(number, state)


def chunk(prompts: list[tuple[int, ...]], group_size: int, greedy: bool = False) -> Chunk:
    rows = tuple(
        Prompt(number, tokens, Example(f"row/{number}", "", ""))
        for number, tokens in enumerate(prompts)
    )
    return Chunk(0, 0, rows, group_size, greedy)
