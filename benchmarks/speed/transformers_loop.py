"""Sampling by transformers.generate, with which our decode loops are compared."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.speed.reward import count_tokens
from rlhf_lab.models.batching import pad_left
from rlhf_lab.types.rollouts import Chunk


def generate_chunk(model: Any, tokenizer: Any, chunk: Chunk, **options: Any) -> int:
    """Sample a chunk once, with no filter on the draw, as TRL calls it. Returns the response tokens
    up to the end token.

    options: of `model.generate`.
    """
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    pad = eos if pad is None else pad
    token_PS, mask_PS = pad_left([prompt.tokens for prompt in chunk.prompts], pad)
    with torch.inference_mode():
        found = model.generate(
            input_ids=token_PS.to(model.device),
            attention_mask=mask_PS.to(model.device),
            num_return_sequences=chunk.group_size,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            eos_token_id=eos,
            pad_token_id=pad,
            **options,
        )
    return sum(count_tokens(row, eos) for row in found[:, token_PS.shape[1] :].tolist())
