"""Output heads: the input embedding itself, or weights of their own."""

from __future__ import annotations

from typing import Any

import torch

from rlhf_lab.models.pretrained import Tying
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
