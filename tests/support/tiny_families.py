"""Tiny models of random weights, of families whose rows are not all read by full attention."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_lab.models.quiet import quiet_transformers

SIZE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
MAMBA_2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8}
LINEAR = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "num_key_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
# Attention beside states, or states alone.
HYBRID: dict[str, dict[str, Any]] = {
    "qwen3_5_text": LINEAR,
    "qwen3_next": LINEAR
    | EXPERTS
    | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "granitemoehybrid": MAMBA_2
    | {
        "layer_types": ["mamba", "attention"],
        "num_key_value_heads": 2,
        "num_local_experts": 0,
        "shared_intermediate_size": 32,
    },
    "lfm2": {
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "nemotron_h": {
        "num_hidden_layers": 3,
        "hybrid_override_pattern": "M*-",
        "head_dim": 8,
        "num_key_value_heads": 2,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "falcon_h1": MAMBA_2
    | {"num_key_value_heads": 2, "head_dim": 8, "mamba_d_ssm": 64, "mamba_n_groups": 1},
    "jamba": EXPERTS
    | {
        "num_key_value_heads": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "bamba": MAMBA_2 | {"num_key_value_heads": 2, "attn_layer_indices": [1], "mamba_n_groups": 1},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 8},
}
ALIBI: dict[str, dict[str, Any]] = {
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon": {"alibi": True, "num_kv_heads": 4, "new_decoder_architecture": False},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
}
OTHERS: dict[str, dict[str, Any]] = {
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 12,
    },
    "gemma3_text": {
        "num_hidden_layers": 6,
        "head_dim": 8,
        "num_key_value_heads": 2,
        "sliding_window": 12,
    },
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "minimax": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 2,
        "block_size": 8,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "phi3": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "attention_window_size": 12,
        "lru_width": 32,
    },
    "rwkv": {"attention_hidden_size": 32, "context_length": 64},
}
FAMILIES = HYBRID | ALIBI | OTHERS


def tiny_config(kind: str, **options: Any) -> Any:
    return AutoConfig.for_model(kind, **{**SIZE, **FAMILIES[kind], **options})


def tiny(kind: str, **options: Any) -> Any:
    """A model in eval mode, with weights far from the small ones at which all tokens look alike."""
    with quiet_transformers():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(tiny_config(kind, **options)).float().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(8.0)
    return model
