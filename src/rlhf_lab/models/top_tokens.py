"""Log-probs of several tokens before each response token: given ones, or the most likely ones."""

from __future__ import annotations

import torch
from torch import Tensor

# Tokens whose log-probs are read, by number, or how many of the most likely ones (0: all).
Asked = Tensor | int


def top_columns(logp: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """The tokens, and their log-probs, along the last dimension. logp: of the whole vocabulary,
    BTV or NV. Given tokens have its leading dimensions."""
    if isinstance(asked, Tensor):
        tokens = asked
    elif asked:
        # The choice has no gradient.
        tokens = logp.detach().topk(asked, dim=-1).indices
    else:
        tokens = torch.arange(logp.shape[-1], device=logp.device).expand_as(logp)
    return tokens, logp.gather(-1, tokens)
