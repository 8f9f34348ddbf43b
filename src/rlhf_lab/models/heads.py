"""Heads of models. Of a language model: the input embedding itself, or weights of their own. Of a
value model: a number for the state before each token, or a histogram of it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.options import Tying
from rlhf_lab.types.data import Bins
from rlhf_lab.types.errors import UserError


def is_tied(model: Any) -> bool:
    """Whether the head and the input embedding are one parameter."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def with_head(model: Any, tying: Tying, path: str) -> Any:
    """The model with its head tied or untied; its outputs do not change, and save_pretrained keeps
    the choice.

    Raises UserError where tying would discard a trained head.
    """
    if tying is Tying.as_saved or is_tied(model) is (tying is Tying.tied):
        return model
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None:
        raise UserError(
            f"model.tie_embeddings={tying.value}, but model.path={path} has no output head: pass "
            "model.tie_embeddings=as_saved"
        )
    if tying is Tying.untied:
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
    elif torch.equal(head.weight, embedding.weight):
        head.weight = embedding.weight
    else:
        raise UserError(
            f"model.tie_embeddings=tied, but the head of model.path={path} differs from its "
            "embedding and would be lost: pass model.tie_embeddings=as_saved"
        )
    return with_tying_recorded(model)


def with_tying_recorded(model: Any) -> Any:
    """The model, whose config has whether its head is tied, so that a saved one is loaded alike."""
    # Models with several configs read the field from that of the text model.
    for config in {id(c): c for c in (model.config, model.config.get_text_config())}.values():
        config.tie_word_embeddings = is_tied(model)
    return model


class ValueNetwork(torch.nn.Module):
    """value = score(hidden state) - offset. body: None if it uses the policy's hidden states.

    bins: of a network that classifies, whose value is the mean of their centres under the softmax
    of its scores, without an offset (arXiv:2403.03950).
    """

    def __init__(
        self,
        body: Any | None,
        score: torch.nn.Module,
        offset: float = 0.0,
        bins: Bins | None = None,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.body = body
        self.score = score
        self._offset = offset

    def forward(self, hidden: Tensor) -> Tensor:
        """The value of every hidden state: BTD -> BT, or ND -> N; with bins their logits instead,
        BTH or NH."""
        # One product a token, so its precision costs nothing: that of its weights.
        with torch.autocast(hidden.device.type, enabled=False):
            read = hidden.to(next(self.score.parameters()).dtype)
            score: Tensor = self.score(read)
            return score.squeeze(-1).float() - self._offset if self.bins is None else score.float()


def expected(logits: Tensor, bins: Bins) -> Tensor:
    """The mean of the bins' centres under the softmax of the last dimension."""
    half = (bins.most - bins.least) / bins.number / 2
    centre_H = torch.linspace(
        bins.least + half, bins.most - half, bins.number, device=logits.device
    )
    return (logits.softmax(dim=-1) * centre_H).sum(dim=-1)


def value_model_from(reward_model: Any, offset: float, bins: Bins | None = None) -> ValueNetwork:
    """Body and head of a reward model, so that values start as its scores (arXiv:2403.17031,
    detail 22). With bins, its body alone, under a head of zeros."""
    if bins is not None:
        weight = reward_model.score.weight
        score = head_of_zeros(weight.shape[1], bins, weight.dtype)
        return ValueNetwork(reward_model.base_model, score, bins=bins).requires_grad_(True)
    return ValueNetwork(reward_model.base_model, reward_model.score, offset).requires_grad_(True)


def value_model_like(policy: Any, is_shared: bool, bins: Bins | None = None) -> ValueNetwork:
    """The policy's own body, shared or a copy of it, under a head of zeros."""
    score = head_of_zeros(policy.config.hidden_size, bins, policy.dtype)
    body = None if is_shared else copy.deepcopy(policy.base_model)
    return ValueNetwork(body, score, bins=bins).requires_grad_(True)


def head_of_zeros(width: int, bins: Bins | None, dtype: torch.dtype) -> torch.nn.Linear:
    """A head whose values are zero, or the middle of the bins."""
    score = torch.nn.Linear(width, 1 if bins is None else bins.number, bias=False, dtype=dtype)
    torch.nn.init.zeros_(score.weight)
    return score
