"""Device options as devices, and the number of threads that torch uses."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    import torch

# More than the caches of a CPU hold. A smaller model is read from them: its operations are too
# short for threads, or another layout of its weights, to save time.
CACHE_BYTES = 64 * 2**20
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def check_name(device: str, key: str) -> None:
    """Raises UserError unless it is auto, cpu, cuda or cuda:N. key: the option that named it."""
    if not DEVICE.fullmatch(device):
        raise UserError(f"{key}={device}: choose auto, cpu, cuda or cuda:0, cuda:1, ...")


def chosen(device: str, key: str = "engine.device") -> torch.device:
    """The device that an option names; auto is the GPU where there is one, else the CPU.

    Raises UserError for a device that this machine does not have. key: the option that named it.
    """
    import torch

    check_name(device, key)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda" if count else "cpu")
    found = torch.device(device)
    if found.type == "cuda" and count <= (found.index or 0):
        raise UserError(
            f"{key}={device}, but torch {torch.__version__} sees {count} GPUs here: pass {key}=cpu "
            "or auto, or install a torch that was built for the machine's GPU"
        )
    return found


def device_of(model: Any) -> torch.device:
    """The device of a model's parameters."""
    found: torch.device = next(model.parameters()).device
    return found


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it that oneDNN uses; others compute it by float32."""
    import torch

    return bool(
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def release_unused() -> None:
    """Give memory that torch keeps for later back to the GPU. vLLM refuses to start where too
    little is free, and after a stage torch still holds what the stage needed."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use `count` threads per operation inside. Results have equal bits only at equal counts."""
    import torch

    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def tensor_float(is_on: bool) -> Iterator[None]:
    """Inside, a GPU may multiply float32 matrices with 10 bits of mantissa, if `is_on`."""
    import torch

    before = torch.get_float32_matmul_precision()
    if is_on:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        if is_on:
            torch.set_float32_matmul_precision(before)
