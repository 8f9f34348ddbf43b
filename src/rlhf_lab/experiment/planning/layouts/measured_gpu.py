"""What the device of this machine does, measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from rlhf_lab.experiment.planning.layouts.gpus import GRAPH_NODE, Gpu

MATRIX, COPY_BYTES, TRIALS, SMALL_OPERATIONS = 1024, 2**26, 5, 2000


def measured_here() -> Gpu:
    """The device of this machine, the CPU with the present number of threads where there is no
    GPU: the best of a few trials, since other work makes each of them slower."""
    is_cuda = torch.cuda.is_available()
    device = torch.device("cuda" if is_cuda else "cpu")
    source = torch.randint(255, (COPY_BYTES,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    bandwidth = 2 * COPY_BYTES / best(lambda: target.copy_(source))
    small = torch.zeros(8, device=device)
    launch = best(lambda: [small.add(1.0) for _ in range(SMALL_OPERATIONS)]) / SMALL_OPERATIONS
    memory = torch.cuda.get_device_properties(device).total_memory if is_cuda else host_memory()
    return Gpu(
        torch.cuda.get_device_name(device) if is_cuda else "this CPU",
        memory,
        products(device, torch.bfloat16),
        products(device, torch.float32),
        bandwidth,
        bandwidth,
        launch,
        GRAPH_NODE if is_cuda else launch,
        device.type,
    )


def products(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of products of random matrices. Those of zeros or ones need less power
    on a GPU, and so are faster than any real ones."""
    size = MATRIX * (8 if device.type == "cuda" else 1)
    matrix = torch.randn(size, size, device=device).to(dtype)
    product = torch.empty_like(matrix)
    return 2 * size**3 / best(lambda: torch.mm(matrix, matrix, out=product))


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few trials, after one that is not counted."""
    seconds = []
    for _ in range(TRIALS + 1):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def host_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
