"""A model taken apart, for readers that pass its layers one by one: its blocks, module by module.

Modules are called and never copied, so whatever weights are loaded into the model are the weights
that are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.models.borders import FIXED_ROTARY, borders


def signed(sin: Tensor) -> Tensor:
    """Sines for `turned`: those of the first half change their sign."""
    first, second = sin.chunk(2, dim=-1)
    return torch.cat([-first, second], dim=-1)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The rotary embedding (arXiv:2104.09864) of the first R numbers of each head."""
    size = cos.shape[-1]
    part = heads[..., :size]
    part = torch.addcmul(part * cos, part.roll(size // 2, dims=-1), sin)
    return part if size == heads.shape[-1] else torch.cat([part, heads[..., size:]], dim=-1)


# Families of transformers whose layers are of a form that is known here.
NEOX = ("gpt_neox",)
LLAMA = ("arcee", "llama", "mistral", "qwen2", "qwen3", "seed_oss")
# Last parts of the names of classes that are policies and reward models.
HEADS = ("ForCausalLM", "ForSequenceClassification")


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
    """A layer of Llama and its like: three projections, keys and values shared by groups of heads.

    has_norms: each head of queries and keys is normed before rotation, as in Qwen3.
    """

    layer: Any
    has_norms: bool

    def project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        attention = self.layer.self_attn
        rows, width, _ = hidden_BTE.shape
        normed = self.layer.input_layernorm(hidden_BTE)
        query, key, value = (
            part(normed).view(rows, width, -1, attention.head_dim)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if self.has_norms:
            query, key = attention.q_norm(query), attention.k_norm(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def merge(self, hidden_BTE: Tensor, attended_BTA: Tensor) -> Tensor:
        hidden_BTE = hidden_BTE + self.layer.self_attn.o_proj(attended_BTA)
        thought: Tensor = self.layer.mlp(self.layer.post_attention_layernorm(hidden_BTE))
        return hidden_BTE + thought


def stack_of(model: Any) -> Stack | None:
    """The model taken apart, None if its class or its attention is not known here."""
    return None if unknown_part(model) else known_stack(model)


def unknown_part(model: Any) -> str:
    """What of a model is not known here: its class or its attention; "" if both are."""
    if family_of(model) not in (*NEOX, *LLAMA):
        return f"the class {type(model).__name__}"
    if found := borders(model.config):
        return f"attention that ends, or changes, after {found[0]:,} tokens"
    rotary = getattr(model.config, "rope_parameters", None) or {}
    if (kind := rotary.get("rope_type")) not in FIXED_ROTARY:
        return f"positions of the kind {kind}"
    return ""


def known_stack(model: Any) -> Stack:
    """A model of a known class taken apart."""
    head = model.score if hasattr(model, "score") else model.get_output_embeddings()
    blocks: Sequence[Block]
    if family_of(model) in NEOX:
        body = model.gpt_neox
        blocks = [NeoXBlock(layer) for layer in body.layers]
        scaling = body.layers[0].attention.scaling
        return Stack(body.embed_in, blocks, body.final_layer_norm, head, body.rotary_emb, scaling)
    body = model.model
    attention = body.layers[0].self_attn
    has_norms = hasattr(attention, "q_norm")
    blocks = [LlamaBlock(layer, has_norms) for layer in body.layers]
    return Stack(body.embed_tokens, blocks, body.norm, head, body.rotary_emb, attention.scaling)


def family_of(model: Any) -> str:
    """The family of a policy or reward model that transformers defines, "" for any other class. By
    names, so that no class is imported for this."""
    kind = type(model)
    family = kind.__module__.rpartition(".modeling_")[2]
    is_theirs = kind.__module__ == f"transformers.models.{family}.modeling_{family}"
    return family if is_theirs and kind.__name__.endswith(HEADS) else ""
