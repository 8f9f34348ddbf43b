"""The sizes in a model's config.json: looked at before a model of such sizes is begun."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.errors import UserError
from rlhf_lab.limits import Limits, require

CONFIG = "config.json"
# What families call their sizes, and what no model of today comes near.
SIZES = {
    ("num_hidden_layers", "n_layer", "num_layers"): 1_000,
    ("hidden_size", "n_embd", "d_model"): 10**6,
    ("num_attention_heads", "n_head", "num_heads", "num_key_value_heads", "head_dim"): 10**5,
    ("vocab_size",): 10**8,
    ("intermediate_size", "n_inner", "ffn_dim"): 10**8,
    ("max_position_embeddings", "n_positions"): 10**9,
}
# A model of text within one of text and pictures has its sizes here.
INNER = "text_config"
DTYPES = ("dtype", "torch_dtype")
PATTERNS = ("*.safetensors", "*.bin")


def require_shape(path: str, key: str) -> None:
    """Refuse a folder's config whose sizes cannot be; one that cannot be read is left to who loads
    it."""
    try:
        config = json.loads((Path(path) / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    for where, part in parts(config):
        require_part(part, f"{key}={path}: in {CONFIG} {where}")


def require_part(part: Mapping[str, Any], place: str) -> None:
    """The same for one level of it. place: what a refusal begins with."""
    for names, most in SIZES.items():
        for name in names:
            if part.get(name) is not None:
                require(f"{place}{name}", part[name], Limits(least=1, most=most), is_whole=True)
    for name, value in part.items():
        if name in DTYPES and value is not None and not is_dtype(value):
            raise UserError(f"{place}{name}={value!r} is no dtype of torch: choose float32")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{place}{name}={value}, which is no finite number: choose one")


def is_dtype(value: Any) -> bool:
    """Whether a config's text names one; `auto` leaves it to the weights."""
    named = str(value).removeprefix("torch.")
    return named == "auto" or isinstance(getattr(torch, named, None), torch.dtype)


def parts(config: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The config, and the part of it that is a language model's."""
    if isinstance(config, dict):
        yield "", config
        if isinstance(inner := config.get(INNER), dict):
            yield f"{INNER}.", inner


def weight_bytes(path: str) -> int:
    """Bytes of a folder's weights, 0 for what is no folder. The same weights may be there twice, in
    two formats."""
    folder = Path(path)
    if not folder.is_dir():
        return 0
    return max(sum(f.stat().st_size for f in folder.glob(pattern)) for pattern in PATTERNS)
