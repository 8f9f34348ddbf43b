"""Policy and value model as one module: FSDP and DeepSpeed wrap a module with one forward pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.forward import (
    TokenRows,
    body,
    in_rows,
    is_splittable,
    response_output,
    response_values,
    states_output,
)
from rlhf_lab.models.shared_prompts import is_packable, packed_states
from rlhf_lab.types.data import PolicyOutput

POLICY = "policy."


class PassKind(StrEnum):
    """What a forward pass computes."""

    policy = "policy"
    values = "values"
    both = "both"


class PassLayout(NamedTuple):
    """How a pass is made, the same in all processes, because sharded parameters travel in it.

    num_chunks: of the logits (forward.response_output). is_packed: each prompt is read once for all
    of its responses, if the models can (shared_prompts).
    """

    num_chunks: int
    is_packed: bool


class PolicyWithValues(torch.nn.Module):
    """values: a ValueNetwork with its own body, a head on the policy (no body), or None.
    shares_prompts: whether passes may be packed, where the models can."""

    def __init__(
        self, policy: Any, values: Any | None, temperature: float, shares_prompts: bool = False
    ) -> None:
        super().__init__()
        self.policy = policy.eval()
        self.values = values
        self.temperature = temperature
        self.is_splittable = is_splittable(policy)
        self.is_packable = (
            shares_prompts
            and self.is_splittable
            and all(is_packable(network) for network in self._bodies())
        )

    def _bodies(self) -> list[Any]:
        """The networks that read tokens."""
        own = [] if self.values is None or self.values.body is None else [self.values.body]
        return [body(self.policy), *own]

    def reference(self, policy: Any) -> PolicyWithValues:
        """The same for a frozen policy, without values; the policy may be on the meta device."""
        own = copy.deepcopy(self, {id(self.policy): policy, id(self.values): None})
        return own.requires_grad_(False)

    def forward(
        self, token_rows: TokenRows, kind: PassKind, layout: PassLayout
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probs and entropy of the response tokens, and values before them, BT each. Zeros or
        None for what `kind` does not include."""
        is_packed = layout.is_packed and self.is_packable
        num_chunks = layout.num_chunks if self.is_splittable else 1
        if kind is PassKind.policy or self.values is None:
            output = self._policy_output(token_rows, None, num_chunks, is_packed)
        elif self.values.body is None:
            output = self._policy_output(token_rows, self.values, num_chunks, is_packed)
        elif kind is PassKind.values:
            # The policy need not run: the value model has a body of its own.
            none_BT = torch.zeros_like(token_rows.mask_BT)
            output = PolicyOutput(none_BT, none_BT, self._values(token_rows, is_packed))
        else:
            output = self._policy_output(token_rows, None, num_chunks, is_packed)
            output = replace(output, value_BT=self._values(token_rows, is_packed))
        return output.logp_BT, output.entropy_BT, output.value_BT

    def _policy_output(
        self, token_rows: TokenRows, values: Any | None, num_chunks: int, is_packed: bool
    ) -> PolicyOutput:
        if not is_packed:
            return response_output(self.policy, token_rows, self.temperature, values, num_chunks)
        hidden_ND = packed_states(body(self.policy), token_rows)
        return states_output(
            self.policy, token_rows, hidden_ND, self.temperature, values, num_chunks
        )

    def _values(self, token_rows: TokenRows, is_packed: bool) -> Tensor:
        values: Any = self.values
        if not is_packed:
            return response_values(values, token_rows)
        return in_rows(values(packed_states(values.body, token_rows)), token_rows.mask_BT)

    def trained(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Trained parameters by name: the policy's (only its adapters, if it has any) as the policy
        names them, then those of the value model, which begin with `values.`."""
        for name, parameter in self.tensors():
            if parameter.requires_grad:
                yield name, parameter

    def tensors(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """All parameters, trained or not."""
        for name, parameter in self.named_parameters():
            yield name.removeprefix(POLICY), parameter

    def save_activations(self) -> None:
        """Gradient checkpointing: store only the inputs of layers, and never enable dropout.

        transformers recomputes only in layers that are in training mode. Their submodules stay in
        eval mode, and their own dropout rates become zero.
        """
        bodies = [self.policy, getattr(self.values, "body", None)]
        for network in (output for output in bodies if output is not None):
            network.gradient_checkpointing_enable({"use_reentrant": False})
            layers = (m for m in network.modules() if getattr(m, "gradient_checkpointing", False))
            for layer in layers:
                layer.training = True
                rates = [name for name, value in vars(layer).items() if isinstance(value, float)]
                for name in rates:
                    if "dropout" in name:
                        setattr(layer, name, 0.0)
