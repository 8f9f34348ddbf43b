"""Policy and value model as one module: FSDP and DeepSpeed wrap a module with one forward pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.forward import (
    TokenRows,
    ValueColumns,
    body,
    response_output,
    response_values,
    states_output,
    value_columns,
)
from rlhf_lab.models.numerical_check import is_splittable
from rlhf_lab.models.right_padded import has_prompts, right_padded_states, takes_right_padded
from rlhf_lab.models.shared_prompts import packed_states, packing_problem
from rlhf_lab.types.data import PolicyOutput

POLICY = "policy."
# A tuple of these, because FSDP and DeepSpeed look for tensors in the results of a forward pass.
PASS_OUTPUT = tuple(f.name for f in fields(PolicyOutput) if not f.name.startswith("reference"))


class PassKind(StrEnum):
    """What a forward pass computes."""

    policy = "policy"
    values = "values"
    both = "both"


class Rows(StrEnum):
    """How a network reads the rows of a batch."""

    padded = "padded"  # Prompts end at one column, and a mask hides the padding before them.
    causal = "causal"  # Padding is behind every token, where causal attention sees none of it.
    packed = "packed"  # Each prompt is read once for all of its responses.


class PassLayout(NamedTuple):
    """How a pass is made, the same in all processes, because sharded parameters travel in it.

    num_chunks: of the logits (forward.response_output). is_packed: each prompt is read once for all
    of its responses, if the models can (shared_prompts).
    """

    num_chunks: int
    is_packed: bool


class PolicyWithValues(torch.nn.Module):
    """values: a ValueNetwork with its own body, a head on the policy (no body), or None.

    shares_prompts: whether passes may be packed, where the models can. maskless_on: the device
    where passes store no masks of all pairs, if the models can do without; None where they do.
    packing_problem: why passes are not packed, in a line; "" where they may be.
    """

    def __init__(
        self,
        policy: Any,
        values: Any | None,
        temperature: float,
        shares_prompts: bool = False,
        maskless_on: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.policy = policy.eval()
        self.values = values
        self.temperature = temperature
        self.maskless_on = maskless_on
        self.is_splittable = is_splittable(policy)
        self.plain_rows = self._plain_rows()
        self.packing_problem = self._packing_problem() if shares_prompts else "it is not wanted"

    def _plain_rows(self) -> Rows:
        """How rows are read where they are not packed."""
        if self.maskless_on is None or not self.is_splittable:
            return Rows.padded
        from rlhf_lab.models.block_attention import use_blocks

        for network in self._bodies():
            use_blocks(network)
        return Rows.causal if all(map(takes_right_padded, self._bodies())) else Rows.padded

    @property
    def is_packable(self) -> bool:
        """Whether passes may be packed."""
        return not self.packing_problem

    def _packing_problem(self) -> str:
        """Why passes are not packed, in a line; "" if they may be."""
        if not self.is_splittable:
            return "its logits are not its output head's alone"
        device = self.maskless_on
        if device is not None:
            from rlhf_lab.models.block_attention import takes_blocks

            if not all(takes_blocks(network, device) for network in self._bodies()):
                return "FlexAttention does not compute its attention"
        problems = (packing_problem(network, device is not None) for network in self._bodies())
        return next((problem for problem in problems if problem), "")

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
    ) -> tuple[Tensor | None, ...]:
        """The fields of PolicyOutput, but those of the reference. Zeros or None for what `kind`
        does not include."""
        rows = self._rows(token_rows, layout)
        num_chunks = layout.num_chunks if self.is_splittable else 1
        if kind is PassKind.policy or self.values is None:
            output = self._policy_output(token_rows, None, num_chunks, rows)
        elif self.values.body is None:
            output = self._policy_output(token_rows, self.values, num_chunks, rows)
        elif kind is PassKind.values:
            # The policy need not run: the value model has a body of its own.
            none_BT = torch.zeros_like(token_rows.mask_BT)
            output = PolicyOutput(none_BT, none_BT, *self._values(token_rows, rows))
        else:
            output = self._policy_output(token_rows, None, num_chunks, rows)
            value_BT, logits_BTH = self._values(token_rows, rows)
            output = replace(output, value_BT=value_BT, value_logits_BTH=logits_BTH)
        return tuple(getattr(output, name) for name in PASS_OUTPUT)

    def _rows(self, token_rows: TokenRows, layout: PassLayout) -> Rows:
        if layout.is_packed and self.is_packable:
            return Rows.packed
        is_causal = self.plain_rows is Rows.causal and has_prompts(token_rows)
        return Rows.causal if is_causal else Rows.padded

    def _policy_output(
        self, token_rows: TokenRows, values: Any | None, num_chunks: int, rows: Rows
    ) -> PolicyOutput:
        if rows is Rows.padded:
            return response_output(self.policy, token_rows, self.temperature, values, num_chunks)
        hidden_ND = self._states(body(self.policy), token_rows, rows)
        return states_output(
            self.policy, token_rows, hidden_ND, self.temperature, values, num_chunks
        )

    def _values(self, token_rows: TokenRows, rows: Rows) -> ValueColumns:
        values: Any = self.values
        if rows is Rows.padded:
            return response_values(values, token_rows)
        hidden_ND = self._states(values.body, token_rows, rows)
        return value_columns(values, hidden_ND, token_rows.mask_BT)

    def _states(self, network: Any, token_rows: TokenRows, rows: Rows) -> Tensor:
        """The hidden states before the response tokens, ND."""
        if rows is Rows.causal:
            return right_padded_states(network, token_rows)
        return packed_states(network, token_rows, by_blocks=self.maskless_on is not None)

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
