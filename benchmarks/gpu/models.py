"""Models with random weights by their configs: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt

# An end token that no policy writes: every answer has the full length.
NEVER = -1


class Tokens:
    """What a generator needs of a tokenizer, where no text is looked at."""

    eos_token_id = NEVER
    pad_token_id = 0

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return ""


def neox(hidden: int, layers: int, heads: int, vocab: int, rotary: float = 0.25) -> GPTNeoXConfig:
    return GPTNeoXConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=2048,
        rotary_pct=rotary,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )


def grouped(kind: type, hidden: int, layers: int, heads: int, keys: int, vocab: int) -> Any:
    """Of Llama or Qwen2, whose heads share keys."""
    return kind(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        intermediate_size=4 * hidden,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )


# The shapes of EleutherAI's Pythia and of Llama 3.2, whose vocabularies decide much of the time.
SIZED: dict[str, Callable[[], Any]] = {
    "pythia_410m": lambda: neox(1024, 24, 16, 50304),
    "pythia_1b": lambda: neox(2048, 16, 8, 50304),
    "llama3.2_1b": lambda: grouped(LlamaConfig, 2048, 16, 32, 8, 128256),
}
TINY: dict[str, Callable[[], Any]] = {
    "GPTNeoX": lambda: neox(64, 2, 4, 512),
    "Llama": lambda: grouped(LlamaConfig, 64, 2, 4, 2, 512),
    "Qwen2": lambda: grouped(Qwen2Config, 64, 2, 4, 2, 512),
}
CLASSES = {
    GPTNeoXConfig: GPTNeoXForCausalLM,
    LlamaConfig: LlamaForCausalLM,
    Qwen2Config: Qwen2ForCausalLM,
}


def make(config: Any, device: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights, drawn on the device that it is for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return CLASSES[type(config)](config).eval()
    finally:
        torch.set_default_dtype(before)


def load(vocab: int, groups: int, group_size: int, shortest: int, longest: int) -> Chunk:
    """Prompts of random tokens, with lengths from the shortest to the longest in even steps."""
    rng = torch.Generator().manual_seed(2)
    prompts = []
    for number in range(groups):
        length = shortest + (longest - shortest) * number // max(1, groups - 1)
        tokens = torch.randint(1, vocab, (length,), generator=rng).tolist()
        prompts.append(Prompt(number, tuple(tokens), Example(str(number), "", "")))
    return Chunk(0, 0, tuple(prompts), group_size)
