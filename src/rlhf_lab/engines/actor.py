"""Policy and value model under one root, so that what wraps modules sees one forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.forward import Texts, is_splittable, response_output, response_values
from rlhf_lab.types import PolicyOutput

POLICY = "policy."


class Reads(StrEnum):
    """What a forward pass is asked for."""

    policy = "policy"
    values = "values"
    both = "both"


class Actor(torch.nn.Module):
    """values: a network of its own, a head on the policy (no body), or None."""

    def __init__(self, policy: Any, values: Any | None, temperature: float) -> None:
        super().__init__()
        self.policy = policy.eval()
        self.values = values
        self.temperature = temperature
        self.is_splittable = is_splittable(policy)

    def forward(
        self, texts: Texts, reads: Reads, num_chunks: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-prob and entropy of the response tokens, and the values before them, BT each; zeros
        where they were not asked for."""
        num_chunks = num_chunks if self.is_splittable else 1
        if reads is Reads.policy or self.values is None:
            found = response_output(self.policy, texts, self.temperature, None, num_chunks)
        elif self.values.body is None:
            found = response_output(self.policy, texts, self.temperature, self.values, num_chunks)
        elif reads is Reads.values:
            # The policy is asked only where its own hidden states are what is read.
            none_BT = torch.zeros_like(texts.mask_BT)
            found = PolicyOutput(none_BT, none_BT, response_values(self.values, texts))
        else:
            found = response_output(self.policy, texts, self.temperature, None, num_chunks)
            found = replace(found, value_BT=response_values(self.values, texts))
        return found.logp_BT, found.entropy_BT, found.value_BT

    def trained(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """What is to be trained by name, the policy's first: they have the names that the policy
        gives them, those of the value model begin with `values.`. Of a policy with adapters, these
        alone are."""
        for name, parameter in self.tensors():
            if parameter.requires_grad:
                yield name, parameter

    def tensors(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """All parameters, trained or not."""
        for name, parameter in self.named_parameters():
            yield name.removeprefix(POLICY), parameter

    def save_activations(self) -> None:
        """Keep only the inputs of the layers for the backward pass, and no dropout with it.

        transformers recomputes in layers that are in training mode alone; all that they hold stays
        in eval mode, and dropout rates of their own become zero.
        """
        bodies = [self.policy, getattr(self.values, "body", None)]
        for network in (body for body in bodies if body is not None):
            network.gradient_checkpointing_enable({"use_reentrant": False})
            layers = (m for m in network.modules() if getattr(m, "gradient_checkpointing", False))
            for layer in layers:
                layer.training = True
                rates = [name for name, value in vars(layer).items() if isinstance(value, float)]
                for name in rates:
                    if "dropout" in name:
                        setattr(layer, name, 0.0)
