"""Sampling by transformers.generate, with which our decode loops are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.speed.reward import count_tokens


def generate(model: Any, tokenizer: Any, inputs: Mapping[str, Any], **options: Any) -> int:
    """Sample once, with no filter on the draw. Returns the response tokens up to the end token.

    inputs: input_ids and attention_mask, padded on the left. options: of `model.generate`.
    """
    eos = tokenizer.eos_token_id
    with torch.inference_mode():
        found = model.generate(
            **inputs,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            eos_token_id=eos,
            pad_token_id=eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
            **options,
        )
    rows = found[:, inputs["input_ids"].shape[1] :].tolist()
    return sum(count_tokens(row, eos) for row in rows)
