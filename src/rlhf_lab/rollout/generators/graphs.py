"""Functions of fixed buffers, replayed as CUDA graphs: the only part of static decoding that needs
a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

# A capture waits for the whole device and makes torch's random state its own for a moment.
CAPTURING = threading.Lock()


class Replays:
    """Calls functions that read and write fixed buffers alone; on a GPU by their graphs.

    A function must not wait for values on the device, and the buffers and the model's weights must
    stay where they are until `clear`. The first call of a key runs its function, so that what
    libraries make at their first use is there; the second captures it, and launches the graph as
    the later ones do.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captures = device.type == "cuda"
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        # Of all graphs, which never run at the same time: what one needs meanwhile is free again.
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def clear(self) -> None:
        """Forget all graphs."""
        self._graphs.clear()
        self._pool = None

    def __call__(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run the function, which is always the same one for this key."""
        if not self._captures or key not in self._graphs:
            self._graphs[key] = None
            function()
            return
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = self._captured(function)
        graph.replay()

    def _captured(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The function's graph, which has not run yet. Other threads may use the GPU meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with CAPTURING, torch.cuda.device(self._device):
            if self._stream is None:
                self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            # Else an allocation of a trainer in another thread would break the capture.
            with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                function()
        return graph
