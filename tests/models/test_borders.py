"""What a config says of how far attention reaches, and how long a row may be."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import (
    Gemma3Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
)

from rlhf_lab.models.borders import borders, longest_row
from tests.support.tiny_families import tiny_config

QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(), ()),
        (MistralConfig(sliding_window=None), ()),
        (MistralConfig(sliding_window=4096), (4096,)),
        (Qwen2Config(), ()),
        (Qwen2Config(**QWEN_WINDOW), (40,)),
        (tiny_config("gpt_neo"), (12,)),
        (tiny_config("recurrent_gemma"), (12,)),
        (tiny_config("mamba2", chunk_size=16), (16,)),
        # Of the part that reads text alone: images have windows of their own.
        (Gemma3Config(text_config={"sliding_window": 99, "sliding_window_pattern": 2}), (99,)),
    ],
)
def test_windows_and_chunks_are_found_by_any_name(config: Any, expected: tuple[int, ...]) -> None:
    assert borders(config) == expected


def longrope(border: int) -> dict[str, Any]:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    fixed = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 8.0}
    return {**fixed, **factors, "original_max_position_embeddings": border}


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (None, 256),
        (longrope(32), 32),
        (LLAMA3, 256),
        ({"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}, 256),
        ({"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}, 256),
    ],
)
def test_rows_end_where_rotary_tables_change(rope: Any, expected: int) -> None:
    shape = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 256}
    kind = Phi3Config if rope and rope["rope_type"] == "longrope" else LlamaConfig
    original = {"original_max_position_embeddings": 32} if kind is Phi3Config else {}
    assert longest_row(kind(**shape, **original, rope_parameters=rope)) == expected


def test_rows_without_positions_have_no_limit() -> None:
    config = tiny_config("mamba")
    del config.max_position_embeddings
    assert longest_row(config) is None
