"""Weights of models: loading a version, its digest, the number of parameters."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from rlhf_lab.types.data import Weights


def load_weights(model: Any, weights: Weights) -> None:
    """Copy a version's tensors into a model; the names must be exactly those of its parameters.

    Tied parameters have one name among the parameters and more in the state, hence not `strict`.
    """
    require_names(model, weights)
    model.load_state_dict(weights.state, strict=False)


def require_names(model: Any, weights: Weights) -> None:
    """Raise ValueError unless the tensors have exactly the names of a model's parameters."""
    names = {name for name, _ in model.named_parameters()}
    if names != set(weights.state):
        raise ValueError(
            f"weights of version {weights.version} are of another model: they differ in "
            f"{sorted(names ^ set(weights.state))[:3]}"
        )


def weights_digest(weights: Weights) -> str:
    """SHA-256 over names and bytes: equal digests mean equal bits."""
    digest = hashlib.sha256()
    for name in sorted(weights.state):
        digest.update(name.encode())
        flat = weights.state[name].detach().contiguous().view(-1).view(torch.uint8)
        digest.update(flat.cpu().numpy().data)
    return digest.hexdigest()


def with_parameters_in(model: Any, dtype: torch.dtype) -> Any:
    """The model with its parameters in a type. Buffers keep theirs: rotary frequencies of half
    precision would move positions."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def num_parameters(model: torch.nn.Module) -> int:
    """Parameters of a model, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
