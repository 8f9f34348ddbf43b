"""Copies of the policy as versions: in host memory, or on the device where it trains."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def copied(tensor: Tensor, stays: bool) -> Tensor:
    """A copy in memory of its own, on its device if it stays there, else on the host.

    Memory of the host that a GPU copies to is pinned: such a copy goes at the speed of the bus and
    runs beside those after it. It is complete after `settle`.
    """
    if stays or tensor.device.type == "cpu":
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return host.copy_(tensor.detach(), non_blocking=True)


def settle(copies: Iterable[Tensor], device: torch.device) -> None:
    """Wait until copies from this device are complete, so that any thread may read them."""
    if device.type == "cuda" and any(True for _ in copies):
        torch.cuda.current_stream(device).synchronize()
