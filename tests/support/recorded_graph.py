"""What a CUDA graph does, on a CPU: operations are recorded once with the tensors that they read
and wrote, and replayed on these very tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# A capture on a GPU fails at these: the host would wait for a value of the device.
WAITS = ("_local_scalar_dense", "nonzero", "item", "is_nonzero", "equal", "masked_select", "unique")


class RecordedGraph(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of a function. `replay` runs them; Python code of the function does not run.

    Recording runs the function, which a capture does not: the first replay is that run.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self._is_new = True
        with self:
            function()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in WAITS, f"{name}: the host waits for the device"
        found = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, found))
        return found

    @property
    def num_kernels(self) -> int:
        """Operations that compute something, which a view does not."""
        names = [func.name() for func, *_ in self.operations if not func.is_view]
        return sum("unsafe_view" not in name for name in names)

    def replay(self) -> None:
        """Run all operations anew, in place."""
        if self._is_new:
            self._is_new = False
            return
        for func, args, kwargs, before in self.operations:
            after = func(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(after), strict=True):
                is_tensor = isinstance(old, torch.Tensor)
                if is_tensor and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
