"""Value models: a scalar for the state before each token, from their own body or the policy's."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor


class ValueNetwork(torch.nn.Module):
    """value = score(hidden state) - offset. body: None if it uses the policy's hidden states."""

    def __init__(self, body: Any | None, score: torch.nn.Module, offset: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.score = score
        self._offset = offset

    def forward(self, hidden: Tensor) -> Tensor:
        """The value of every hidden state: BTD -> BT, or ND -> N."""
        # One product a token, so its precision costs nothing: that of its weights.
        with torch.autocast(hidden.device.type, enabled=False):
            read = hidden.to(next(self.score.parameters()).dtype)
            value: Tensor = self.score(read).squeeze(-1).float() - self._offset
        return value


def value_model_from(reward_model: Any, offset: float) -> ValueNetwork:
    """Body and head of a reward model, so that values start as its scores (arXiv:2403.17031,
    detail 22)."""
    return ValueNetwork(reward_model.base_model, reward_model.score, offset).requires_grad_(True)


def value_model_like(policy: Any, is_shared: bool) -> ValueNetwork:
    """The policy's own body, shared or a copy of it, under a head of zeros."""
    score = torch.nn.Linear(policy.config.hidden_size, 1, bias=False, dtype=policy.dtype)
    torch.nn.init.zeros_(score.weight)
    body = None if is_shared else copy.deepcopy(policy.base_model)
    return ValueNetwork(body, score).requires_grad_(True)
