"""Products of decode steps over packed weights, on a CPU.

A step reads every weight for a few rows. torch's own product of a few rows takes twice as long as
memory does; oneDNN's, over a copy of the weight in the layout of its kernel, comes nearer. The copy
takes the memory of the weights once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rlhf_lab.models.devices import CACHE_BYTES, multiplies_bfloat16

# Of more rows, arithmetic is what takes the time, and torch's own product is as fast.
MOST_ROWS = 32
# Rows that the layout is chosen for.
ROWS = 8


class PackedProduct:
    """The forward pass of one linear layer, without gradients."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._packed: Tensor | None = None
        self._of: tuple[int, int] | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """hidden: any shape whose last dimension is the layer's inputs."""
        weight = self._layer.weight
        if hidden.numel() > MOST_ROWS * hidden.shape[-1]:
            return linear(hidden, weight, self._layer.bias)
        state = (weight.data_ptr(), weight._version)
        if self._of != state:
            # Freed before the new one is made, so that no layer is in memory three times.
            self._packed = None
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
            self._of = state
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            hidden, self._packed, self._layer.bias, "none", [], ""
        )
        return product


class PackedProducts:
    """Those of a model's linear layers, if it is on a CPU, in a type that the CPU multiplies, and
    they take at least CACHE_BYTES; of another model none. New weights are packed at their first
    use."""

    def __init__(self, model: Any) -> None:
        layers = [module for module in model.modules() if type(module) is nn.Linear]
        dtypes = {torch.float32} | ({torch.bfloat16} if multiplies_bfloat16() else set())
        is_packed = (
            torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
            and all(layer.weight.device.type == "cpu" for layer in layers)
            and {layer.weight.dtype for layer in layers} <= dtypes
            and sum(layer.weight.nbytes for layer in layers) >= CACHE_BYTES
        )
        self._products = [(layer, PackedProduct(layer)) for layer in layers if is_packed]

    def __len__(self) -> int:
        return len(self._products)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The layers compute by them; gradients are off."""
        for layer, product in self._products:
            layer.forward = product  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            for layer, _ in self._products:
                del layer.forward
