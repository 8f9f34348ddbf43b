"""A model taken apart, for readers that pass its layers one by one: its blocks, module by module.

Modules are called and never copied, so whatever weights are loaded into the model are the weights
that are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from transformers import (
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

from rlhf_lab.models.borders import FIXED_ROTARY, borders

NEOX = (GPTNeoXForCausalLM, GPTNeoXForSequenceClassification)
LLAMA = (
    *(LlamaForCausalLM, LlamaForSequenceClassification),
    *(Qwen2ForCausalLM, Qwen2ForSequenceClassification),
)


class Block(Protocol):
    """A layer without its attention: B rows of T tokens with E numbers each, A in its heads."""

    def project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values before rotation, B heads T D each."""
        ...

    def merge(self, hidden_BTE: Tensor, attended_BTA: Tensor) -> Tensor:
        """The layer's output from its input and what attention found."""
        ...


@dataclass(frozen=True)
class Stack:
    """A model taken apart. rotary(hidden, positions BT) gives cosines and sines, BTR each. head: of
    a policy, its logits; of a reward model, its scores."""

    embed: Callable[[Tensor], Tensor]
    blocks: Sequence[Block]
    norm: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]
    rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    scaling: float


@dataclass(frozen=True)
class NeoXBlock:
    """A GPTNeoX layer: one projection for all three, residual in parallel or in sequence."""

    layer: Any

    def project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attention = self.layer.attention
        rows, width, _ = hidden_BTE.shape
        both = attention.query_key_value(self.layer.input_layernorm(hidden_BTE))
        both = both.view(rows, width, -1, 3 * attention.head_size).transpose(1, 2)
        query, key, value = both.chunk(3, dim=-1)
        return query, key, value

    def merge(self, hidden_BTE: Tensor, attended_BTA: Tensor) -> Tensor:
        layer = self.layer
        found: Tensor = layer.attention.dense(attended_BTA)
        if layer.use_parallel_residual:
            thought: Tensor = layer.mlp(layer.post_attention_layernorm(hidden_BTE))
            return thought + found + hidden_BTE
        found = found + hidden_BTE
        thought = layer.mlp(layer.post_attention_layernorm(found))
        return thought + found


@dataclass(frozen=True)
class LlamaBlock:
    """A Llama or Qwen2 layer: three projections, keys and values shared by groups of heads."""

    layer: Any

    def project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attention = self.layer.self_attn
        rows, width, _ = hidden_BTE.shape
        normed = self.layer.input_layernorm(hidden_BTE)
        query, key, value = (
            part(normed).view(rows, width, -1, attention.head_dim).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        return query, key, value

    def merge(self, hidden_BTE: Tensor, attended_BTA: Tensor) -> Tensor:
        hidden_BTE = hidden_BTE + self.layer.self_attn.o_proj(attended_BTA)
        thought: Tensor = self.layer.mlp(self.layer.post_attention_layernorm(hidden_BTE))
        return hidden_BTE + thought


def stack_of(model: Any) -> Stack | None:
    """The model taken apart, None if its class or its attention is not known here."""
    if not has_known_attention(model.config):
        return None
    head = model.score if hasattr(model, "score") else model.get_output_embeddings()
    blocks: Sequence[Block]
    if type(model) in NEOX:
        body = model.gpt_neox
        blocks = [NeoXBlock(layer) for layer in body.layers]
        scaling = body.layers[0].attention.scaling
        return Stack(body.embed_in, blocks, body.final_layer_norm, head, body.rotary_emb, scaling)
    if type(model) in LLAMA:
        body = model.model
        blocks = [LlamaBlock(layer) for layer in body.layers]
        scaling = body.layers[0].self_attn.scaling
        return Stack(body.embed_tokens, blocks, body.norm, head, body.rotary_emb, scaling)
    return None


def has_known_attention(config: Any) -> bool:
    """Whether every layer attends to all that came before, with a fixed rotary table."""
    rotary = getattr(config, "rope_parameters", None) or {}
    return rotary.get("rope_type") in FIXED_ROTARY and not borders(config)
