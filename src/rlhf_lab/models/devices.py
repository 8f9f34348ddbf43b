"""Device options as devices, torch's threads, and kernels that add up in a fixed order
(`deterministic=true`).

Some of CUDA's kernels add with atomics, in an order that changes from call to call. With the flag,
PyTorch takes others, and raises an error at operations that have none.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    import torch


# cuBLAS uses streams of its own in workspaces of other sizes. It reads this once.
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACES = (":4096:8", ":16:8")
# More than the caches of a CPU hold. A smaller model is read from them: its operations are too
# short for threads, or another layout of its weights, to save time.
CACHE_BYTES = 64 * 2**20
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


@contextmanager
def deterministic(is_on: bool) -> Iterator[None]:
    """Take deterministic kernels inside the block, in all threads of this process. Processes that
    it starts get the environment, and must turn them on themselves.

    Raises UserError if CUDA works already in an environment that excludes them.
    """
    if not is_on:
        yield
        return
    import torch

    memory: Any = torch.utils.deterministic
    cudnn = torch.backends.cudnn
    is_enabled = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    before = (memory.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic)
    turn_on()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(is_enabled, warn_only=warns)
        memory.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic = before


def turn_on() -> None:
    """Take deterministic kernels from here on."""
    import torch

    require_workspace()
    torch.use_deterministic_algorithms(True)
    # For finding reads of such memory; it would only cost time.
    memory: Any = torch.utils.deterministic
    memory.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def require_workspace() -> None:
    """Set the workspace of cuBLAS, for this process and those that it starts."""
    import torch

    if os.environ.get(WORKSPACE) in FIXED_WORKSPACES:
        return
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise UserError(
            f"deterministic=true with {WORKSPACE}={os.environ.get(WORKSPACE, '')!r}: CUDA has "
            f"started already, and cuBLAS reads it then; set {WORKSPACE}={FIXED_WORKSPACES[0]} in "
            "the environment of the program"
        )
    os.environ[WORKSPACE] = FIXED_WORKSPACES[0]


def check_name(device: str, key: str) -> None:
    """Raises UserError unless it is auto, cpu, cuda or cuda:N. key: the option that named it."""
    if device.startswith("mps"):
        raise UserError(
            f"{key}={device}: Apple's GPU is not supported, since it has no float64 and gives no "
            "equal bits: pass auto or cpu"
        )
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
