"""The rotary embedding of models that are read layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor


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
