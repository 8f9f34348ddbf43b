"""`deterministic=true`: kernels that add up in a fixed order, on a GPU too.

Some of CUDA's kernels add with atomics, in an order that changes from call to call. With the flag,
PyTorch takes others, and raises an error at operations that have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlhf_lab.types.errors import UserError

# cuBLAS uses streams of its own in workspaces of other sizes. It reads this once.
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACES = (":4096:8", ":16:8")


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
