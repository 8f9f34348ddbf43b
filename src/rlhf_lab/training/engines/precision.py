"""Passes in bfloat16 over float32 masters, where one process holds whole tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from rlhf_lab.training.engines.policy_with_values import PolicyWithValues

# Modules whose weights autocast rounds wherever they are used.
ROUNDED = ("Linear", "Conv1D")


def with_masters(networks: PolicyWithValues) -> PolicyWithValues:
    """The same networks with everything that is trained in float32; frozen weights below adapters
    stay as they are."""
    for parameter in networks.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return networks


def autocast(device: torch.device, is_low: bool) -> AbstractContextManager[object]:
    """Inside, matrix products and attention are in bfloat16 if `is_low`; norms, softmax and sums
    stay in float32. Passes that are computed again in the backward pass keep the choice."""
    return torch.autocast(device.type, torch.bfloat16) if is_low else nullcontext()


def round_frozen(networks: PolicyWithValues, is_reference: bool = True) -> None:
    """Hold the matrices of frozen networks in bfloat16, as autocast rounds them in every pass: half
    the memory and the same bits. Embeddings and norms, which it does not round, stay.

    is_reference: whether nothing else reads them. Below adapters those alone are held so which lose
    nothing, since versions are made of them.
    """
    embeddings = {
        id(parameter)
        for module in networks.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters()
    }
    for module in networks.modules():
        if type(module).__name__ in ROUNDED:
            for parameter in module.parameters(recurse=False):
                if id(parameter) in embeddings:
                    continue
                rounded = parameter.data.bfloat16()
                loses = parameter.requires_grad or not torch.equal(rounded.float(), parameter.data)
                if is_reference or not loses:
                    parameter.data = rounded
