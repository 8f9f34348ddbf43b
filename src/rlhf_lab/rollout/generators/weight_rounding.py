"""Weights rounded to a format of inference and back: numerics of a generator on any device.

A generator that computes in fewer bits than the trainer draws from another policy, whose log-probs
the samples carry (training-inference mismatch, arXiv:2512.01374). Here its weights alone are
rounded; activations and sums keep their type.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlhf_lab.rollout.generators.options import RoundWeights
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError

CASTS = {RoundWeights.bf16: torch.bfloat16, RoundWeights.fp16: torch.float16}
LARGEST_INT8 = 127.0
LARGEST_FP8 = torch.finfo(torch.float8_e4m3fn).max


class WeightRounding:
    """Rounds versions of one model's weights.

    bf16, fp16: all tensors, to the nearest value of the type. fp8_e4m3, int8: the matrices of
    linear layers but for the output head, with a scale for each output channel that maps its
    largest magnitude to the format's; embeddings, norms and biases stay, as in vLLM's formats
    (docs.vllm.ai, quantization: fp8, int8). Raises UserError for a model without such layers.
    """

    def __init__(self, model: Any, to: RoundWeights) -> None:
        self._to = to
        self._matrices = linear_weights(model)
        if to in (RoundWeights.fp8_e4m3, RoundWeights.int8) and not self._matrices:
            raise UserError(
                f"generator.round_weights={to.value}: {type(model).__name__} has no "
                "torch.nn.Linear besides its head; pass generator.round_weights=bf16 or none"
            )

    def __call__(self, weights: Weights) -> Weights:
        """The version with rounded tensors of the same names, shapes and types."""
        if self._to is RoundWeights.none:
            return weights
        state = {name: self._rounded(name, tensor) for name, tensor in weights.state.items()}
        return Weights(weights.version, state)

    def _rounded(self, name: str, tensor: Tensor) -> Tensor:
        if self._to in CASTS:
            return tensor.to(CASTS[self._to]).to(tensor.dtype)
        return by_channel(tensor, self._to) if name in self._matrices else tensor


def linear_weights(model: Any) -> frozenset[str]:
    """Names of the matrices of linear layers, without the output head's."""
    head = model.get_output_embeddings()
    return frozenset(
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    )


def by_channel(matrix_OI: Tensor, to: RoundWeights) -> Tensor:
    """A matrix rounded to 8 bits and back, with a symmetric scale for each row, an output channel.

    O, I: outputs and inputs. Rows of zeros stay as they are.
    """
    exact_OI = matrix_OI.detach().float()
    largest = LARGEST_INT8 if to is RoundWeights.int8 else LARGEST_FP8
    scale_O1 = exact_OI.abs().amax(dim=1, keepdim=True) / largest
    scale_O1 = scale_O1.clamp(min=torch.finfo(torch.float32).tiny)
    steps_OI = exact_OI / scale_O1
    if to is RoundWeights.int8:
        steps_OI = steps_OI.round().clamp(-largest, largest)
    else:
        steps_OI = steps_OI.clamp(-largest, largest).to(torch.float8_e4m3fn).float()
    return (steps_OI * scale_O1).to(matrix_OI.dtype)
