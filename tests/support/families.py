"""Families of causal language models as tiny configs: every kind of attention that trains.

A family is a model_type of transformers and what it needs beside SHAPE. Windows, chunks and borders
of rotary tables are shorter than the texts that are read (family_texts.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_lab.models.quiet import quiet_transformers

VOCABULARY = 48
WINDOW = 10
# The border of rotary tables that change with the length of a text.
BORDER = 16
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# A field of SHAPE that a config does not take.
ABSENT = object()
SLIDING = {"sliding_window": WINDOW}
FULL_THEN_SLIDING = {"layer_types": ["full_attention", "sliding_attention"], **SLIDING}
SLIDING_THEN_FULL = {"layer_types": ["sliding_attention", "full_attention"], **SLIDING}
LINEAR_THEN_FULL = {"layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
GATED_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
STATE_SPACE = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
    "mamba_expand": 2,
    "mamba_d_ssm": 64,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 8,
    "patch_size": 4,
}


def rotary(kind: str, **numbers: Any) -> dict[str, Any]:
    """The rotary table of a kind."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **numbers}}


class Family(NamedTuple):
    """attention: the kind, as the page shows it. kind: the model_type. options: of its config."""

    attention: str
    kind: str
    options: dict[str, Any]


def family(attention: str, kind: str, **options: Any) -> Family:
    return Family(attention, kind, options)


FULL = {
    "GPT-NeoX, Pythia": family("partial rotary", "gpt_neox"),
    "Llama, SmolLM2, Rho": family("grouped queries", "llama"),
    "Llama, one key": family("one key for all queries", "llama", num_key_value_heads=1),
    "Llama 3.1": family(
        "rotary of 3.1",
        "llama",
        **rotary(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=BORDER,
        ),
    ),
    "Llama, linear": family("linear rotary", "llama", **rotary("linear", factor=2.0)),
    "Llama, dynamic": family(
        "dynamic rotary", "llama", **rotary("dynamic", factor=4.0), max_position_embeddings=BORDER
    ),
    "Llama, yarn": family(
        "yarn",
        "llama",
        **rotary("yarn", factor=4.0, original_max_position_embeddings=BORDER),
    ),
    "Qwen2, Qwen2.5": family("bias of queries", "qwen2"),
    "Qwen2, window": family(
        "windows in last layers", "qwen2", use_sliding_window=True, max_window_layers=1, **SLIDING
    ),
    "Qwen3": family("norms of queries", "qwen3"),
    "SmolLM3": family("some layers without positions", "smollm3", no_rope_layers=[1, 0]),
    "Phi": family("partial rotary", "phi"),
    "Phi-3": family("joint projections", "phi3"),
    "Phi-3.5, Phi-4": family(
        "longrope",
        "phi3",
        **rotary(
            "longrope",
            short_factor=[1.0] * 4,
            long_factor=[4.0] * 4,
            original_max_position_embeddings=BORDER,
        ),
        original_max_position_embeddings=BORDER,
    ),
    "Gemma": family("one key for all queries", "gemma", num_key_value_heads=1),
    "OLMo": family("norms without weights", "olmo", clip_qkv=2.0),
    "OLMo 2": family("norms behind layers", "olmo2"),
    "StableLM": family("partial rotary", "stablelm"),
    "Starcoder2": family("biases", "starcoder2"),
    "Starcoder2, window": family("sliding window", "starcoder2", **SLIDING),
    "Granite 3": family("scaled residuals", "granite", logits_scaling=4.0, residual_multiplier=0.5),
    "Helium": family("full", "helium"),
    "Cohere, Command R": family("parallel layers", "cohere", logit_scale=1.0),
    "GLM": family("interleaved rotary", "glm"),
    "GLM 4": family("interleaved rotary", "glm4"),
    "ERNIE 4.5": family("interleaved rotary", "ernie4_5"),
    "Nemotron": family("partial rotary", "nemotron"),
    "Arcee": family("full", "arcee"),
    "Apertus": family("norms of queries", "apertus"),
    "Seed-OSS": family("full", "seed_oss"),
    "Hunyuan": family("norms of queries", "hunyuan_v1_dense"),
    "HyperCLOVA X": family("full", "hyperclovax"),
    "BitNet": family("norms inside layers", "bitnet"),
    "NanoChat": family("capped logits", "nanochat"),
    "Persimmon": family("partial rotary", "persimmon"),
    "Jais 2": family("full", "jais2"),
    "DiffLlama": family("difference of two attentions", "diffllama"),
    "Doge": family("mask of values", "doge"),
    "Ministral 3": family(
        "yarn with scaled queries",
        "ministral3",
        **rotary(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=BORDER,
            llama_4_scaling_beta=0.1,
        ),
    ),
}
WINDOWED = {
    "Mistral 0.1": family("sliding window", "mistral", **SLIDING),
    "Mistral 0.3": family("grouped queries", "mistral", sliding_window=None),
    "Ministral": family("sliding window", "ministral", **SLIDING),
    "Gemma 2": family(
        "alternating, capped",
        "gemma2",
        **SLIDING_THEN_FULL,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
        query_pre_attn_scalar=8,
    ),
    "Gemma 3": family("alternating", "gemma3_text", **SLIDING_THEN_FULL, query_pre_attn_scalar=8),
    "Gemma 3, images": family(
        "alternating, text_config",
        "gemma3",
        text_config={**SHAPE, **SLIDING_THEN_FULL, "query_pre_attn_scalar": 8},
        vision_config=VISION,
        mm_tokens_per_image=4,
    ),
    "Qwen3.5, images": family(
        "gated delta, text_config",
        "qwen3_5",
        text_config={**SHAPE, **LINEAR_THEN_FULL, **GATED_DELTA},
        vision_config={**VISION, "depth": 1, "num_heads": 4, "out_hidden_size": 32},
    ),
    "Gemma 3n": family(
        "alternating, shared caches",
        "gemma3n_text",
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        **SLIDING,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8,
        laurel_rank=4,
        activation_sparsity_pattern=[0.0] * 4,
        intermediate_size=[48] * 4,
    ),
    "Gemma 4": family(
        "alternating, shared caches",
        "gemma4_text",
        **SLIDING_THEN_FULL,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=8,
        global_head_dim=8,
    ),
    "VaultGemma": family(
        "alternating, capped",
        "vaultgemma",
        **SLIDING_THEN_FULL,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
    ),
    "Cohere 2, Command R7B": family("alternating", "cohere2", **SLIDING_THEN_FULL, logit_scale=1.0),
    "OLMo 3": family("alternating", "olmo3", **SLIDING_THEN_FULL),
    "EXAONE 4": family("alternating", "exaone4", **SLIDING_THEN_FULL),
    "CWM": family("alternating", "cwm", **FULL_THEN_SLIDING),
    "Granite, window": family("alternating", "granite_swa", **FULL_THEN_SLIDING),
    "ModernBERT decoder": family(
        "alternating",
        "modernbert-decoder",
        **FULL_THEN_SLIDING,
        local_attention=WINDOW,
    ),
    "GPT-Neo": family(
        "alternating, learned positions",
        "gpt_neo",
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        window_size=WINDOW,
    ),
    "Llama 4": family(
        "chunks, experts",
        "llama4_text",
        layer_types=["chunked_attention", "full_attention"],
        no_rope_layers=[1, 0],
        attention_chunk_size=WINDOW,
        intermediate_size_mlp=48,
        **LOCAL_EXPERTS,
        interleave_moe_layer_step=1,
    ),
}
POSITIONS = {
    "BERT": family("both directions", "bert"),
    "BERT, decoder": family("learned positions", "bert", is_decoder=True),
    "GPT-2": family("learned positions", "gpt2"),
    "GPT": family("learned positions", "openai-gpt", n_layer=2, n_head=4, n_embd=32),
    "OPT": family("learned positions", "opt", ffn_dim=48, word_embed_proj_dim=32),
    "GPTBigCode, Starcoder": family("learned positions, one key", "gpt_bigcode"),
    "BioGPT": family("learned positions", "biogpt"),
    "XGLM": family("sine positions", "xglm", num_layers=2, attention_heads=4, ffn_dim=48),
    "GPT-J": family("partial rotary", "gptj", rotary_dim=4),
    "CodeGen": family("partial rotary", "codegen", rotary_dim=4),
    "GPT-NeoX Japanese": family("partial rotary", "gpt_neox_japanese"),
    "Falcon": family("rotary, one key", "falcon", alibi=False, head_dim=ABSENT),
    "Falcon, ALiBi": family("ALiBi", "falcon", alibi=True, head_dim=ABSENT),
    "Bloom": family("ALiBi", "bloom", n_head=4, n_layer=2),
    "MPT": family("ALiBi", "mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=64),
    "Moshi": family("sliding window", "moshi", **SLIDING, ffn_dim=48),
}
LATENTS = {
    "DeepSeek V2": family("latent, experts", "deepseek_v2", **LATENT, **ROUTED),
    "DeepSeek V3, R1": family("latent, experts", "deepseek_v3", **LATENT, **ROUTED),
    "DeepSeek V3.2": family(
        "latent, sparse, experts",
        "deepseek_v32",
        **LATENT,
        **ROUTED,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=WINDOW,
    ),
    "GLM 5": family(
        "latent, sparse, experts",
        "glm_moe_dsa",
        **LATENT,
        **ROUTED,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=WINDOW,
    ),
    "DeepSeek V4": family(
        "compressed, sparse, window, experts",
        "deepseek_v4",
        num_key_value_heads=1,
        layer_types=["compressed_sparse_attention", "heavily_compressed_attention"],
        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
        q_lora_rank=16,
        o_groups=2,
        o_lora_rank=8,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=4,
        **ROUTED,
        **SLIDING,
    ),
    "MiniCPM 3": family("latent", "minicpm3", **LATENT, dim_model_base=32),
    "Youtu": family("latent", "youtu", **LATENT),
    "GLM 4.7 Flash": family("latent, experts", "glm4_moe_lite", **LATENT, **ROUTED),
    "LongCat Flash": family(
        "latent, experts",
        "longcat_flash",
        **LATENT,
        n_routed_experts=4,
        moe_topk=2,
        zero_expert_num=2,
        expert_ffn_hidden_size=16,
        ffn_hidden_size=48,
        num_layers=2,
    ),
}
EXPERT = {
    "Mixtral": family("experts", "mixtral", sliding_window=None, **LOCAL_EXPERTS),
    "Mixtral, window": family("sliding window, experts", "mixtral", **SLIDING, **LOCAL_EXPERTS),
    "Qwen2-MoE": family("experts", "qwen2_moe", **EXPERTS, shared_expert_intermediate_size=16),
    "Qwen3-MoE": family("experts", "qwen3_moe", **EXPERTS),
    "gpt-oss": family(
        "alternating, sinks, experts", "gpt_oss", **SLIDING_THEN_FULL, **LOCAL_EXPERTS
    ),
    "OLMoE": family("experts", "olmoe", num_experts=4, num_experts_per_tok=2),
    "FlexOlmo": family("experts", "flex_olmo", num_experts=4, num_experts_per_tok=2),
    "Phi-3.5 MoE": family("experts", "phimoe", **LOCAL_EXPERTS),
    "GLM 4.5": family("experts", "glm4_moe", **ROUTED),
    "dots.llm1": family("experts", "dots1", **ROUTED, n_shared_experts=1),
    "ERNIE 4.5 MoE": family(
        "experts", "ernie4_5_moe", moe_num_experts=4, moe_k=2, moe_intermediate_size=16
    ),
    "MiniMax M2": family("experts", "minimax_m2", **LOCAL_EXPERTS),
    "Hunyuan MoE": family("experts", "hunyuan_v1_moe", num_experts=4, moe_topk=2),
    "Granite 3 MoE": family("experts", "granitemoe", **LOCAL_EXPERTS),
    "Granite 3 MoE, shared": family("experts", "granitemoeshared", **LOCAL_EXPERTS),
    "Solar Open": family("experts", "solar_open", **ROUTED),
    "Hunyuan 3": family("experts", "hy_v3", **EXPERTS),
    "Cohere 2 MoE": family(
        "alternating, experts", "cohere2_moe", **SLIDING_THEN_FULL, **EXPERTS, logit_scale=1.0
    ),
    "EXAONE MoE": family("alternating, experts", "exaone_moe", **SLIDING_THEN_FULL, **EXPERTS),
    "MiMo V2 Flash": family(
        "alternating, sinks, experts", "mimo_v2_flash", **FULL_THEN_SLIDING, **ROUTED
    ),
    "Laguna": family("alternating, experts", "laguna", **FULL_THEN_SLIDING, **EXPERTS),
    "JetMoE": family("experts of attention", "jetmoe", kv_channels=8, **LOCAL_EXPERTS),
    "AFMoE": family(
        "alternating, experts",
        "afmoe",
        **SLIDING_THEN_FULL,
        **EXPERTS,
        num_dense_layers=1,
        num_shared_experts=1,
    ),
}
RECURRENT = {
    "Qwen3-Next": family(
        "gated delta, experts",
        "qwen3_next",
        **LINEAR_THEN_FULL,
        **GATED_DELTA,
        **EXPERTS,
        shared_expert_intermediate_size=16,
    ),
    "Qwen3.5": family("gated delta", "qwen3_5_text", **LINEAR_THEN_FULL, **GATED_DELTA),
    "Qwen3.5 MoE": family(
        "gated delta, experts",
        "qwen3_5_moe_text",
        **LINEAR_THEN_FULL,
        **GATED_DELTA,
        **EXPERTS,
        shared_expert_intermediate_size=16,
    ),
    "OLMo Hybrid": family("gated delta", "olmo_hybrid", **LINEAR_THEN_FULL, **GATED_DELTA),
    "Kimi Linear": family(
        "gated delta, latent",
        "kimi_linear",
        **LINEAR_THEN_FULL,
        **LATENT | {"q_lora_rank": None},
        **EXPERTS,
        linear_attn_config={"head_dim": 8, "num_heads": 4, "short_conv_kernel_size": 4},
    ),
    "Qwen4": family(
        "gated delta, sparse, experts",
        "qwen4_exp_text",
        layer_types=["linear_attention", "indexed_attention"],
        **GATED_DELTA,
        **EXPERTS,
        shared_expert_intermediate_size=16,
        hc_lowrank=8,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=WINDOW - WINDOW % 2,
        indexer_compress_ratio=2,
    ),
    "ZAYA": family(
        "convolved queries, experts",
        "zaya",
        **EXPERTS | {"num_experts_per_tok": 1},
        router_hidden_size=8,
    ),
    "Granite 4": family(
        "Mamba 2, experts",
        "granitemoehybrid",
        layer_types=["mamba", "attention"],
        **STATE_SPACE,
        **LOCAL_EXPERTS,
        shared_intermediate_size=16,
    ),
    "LFM2": family("short convolutions", "lfm2", layer_types=["conv", "full_attention"]),
    "LFM2 MoE": family(
        "short convolutions, experts",
        "lfm2_moe",
        layer_types=["conv", "full_attention"],
        **EXPERTS,
        num_dense_layers=1,
    ),
    "Nemotron-H": family(
        "Mamba 2",
        "nemotron_h",
        layers_block_type=["mamba", "attention"],
        mamba_num_heads=4,
        mamba_head_dim=16,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=8,
    ),
    "Falcon-H1": family("Mamba 2 in parallel", "falcon_h1", **STATE_SPACE),
    "Jamba": family(
        "Mamba, experts",
        "jamba",
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        num_experts_per_tok=2,
        mamba_d_state=8,
        use_mamba_kernels=False,
    ),
    "Bamba": family("Mamba 2", "bamba", attn_layer_indices=[1], **STATE_SPACE),
    "Zamba 2": family(
        "Mamba 2, shared attention",
        "zamba2",
        num_hidden_layers=3,
        layers_block_type=["mamba", "hybrid", "mamba"],
        mamba_d_state=8,
        n_mamba_heads=4,
        chunk_size=8,
        adapter_rank=4,
        use_mamba_kernels=False,
    ),
    "MiniMax": family("lightning", "minimax", **LOCAL_EXPERTS, block_size=8),
    "Mamba": family("Mamba", "mamba", state_size=8),
    "Falcon Mamba": family("Mamba", "falcon_mamba", state_size=8),
    "Mamba 2": family(
        "Mamba 2", "mamba2", num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=8
    ),
    "RecurrentGemma": family(
        "recurrent, window",
        "recurrent_gemma",
        num_hidden_layers=3,
        attention_window_size=WINDOW,
        lru_width=32,
    ),
    "RWKV": family("RWKV 4", "rwkv", attention_hidden_size=32, context_length=64),
    "xLSTM": family("mLSTM", "xlstm", num_blocks=2, num_heads=4, chunk_size=8),
}
FAMILIES = {**FULL, **WINDOWED, **POSITIONS, **LATENTS, **EXPERT, **RECURRENT}


def model_of(member: Family) -> Any:
    """A float32 model of a family in eval mode, with weights far enough from zero that what a token
    sees shows."""
    with quiet_transformers():
        given = {**SHAPE, **member.options}
        options = {name: value for name, value in given.items() if value is not ABSENT}
        config = AutoConfig.for_model(member.kind, **options)
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight += 0.15 * torch.randn_like(weight)
    return made
