"""Models without memory for weights compute like those with it, once they are given weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig

from rlhf_lab.models.loading import shape_of

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}


@pytest.mark.parametrize("kind", [GPTNeoXConfig, LlamaConfig])
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_shape_with_the_weights_of_a_model_is_that_model_bit_for_bit(
    kind: Any, is_tied: bool
) -> None:
    config = kind(**SIZES, tie_word_embeddings=is_tied)
    model = AutoModelForCausalLM.from_config(config).eval()
    before = torch.random.get_rng_state()
    shape = shape_of(AutoModelForCausalLM, config, "x", "model.path").eval()
    assert torch.equal(torch.random.get_rng_state(), before)
    weights = dict(model.named_parameters())
    own = dict(shape.named_parameters())
    assert own.keys() == weights.keys()
    assert any(p.is_meta for p in own.values())
    assert not any(b.is_meta for b in shape.buffers())
    row_1S = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        found = functional_call(shape, weights, kwargs={"input_ids": row_1S}).logits
        assert torch.equal(found, model(input_ids=row_1S).logits)
    assert all(shape.get_parameter(name) is tensor for name, tensor in own.items())
