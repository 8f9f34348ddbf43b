"""Named GPUs: their figures, published and measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rlhf_lab.types.errors import UserError

MATRIX, COPY_BYTES, TRIALS, SMALL_OPERATIONS = 1024, 2**26, 5, 2000
HERE = "this"
# Shares of a datasheet's numbers that large products and copies reach: on an H200, 790 of 989
# TFLOP/s in bfloat16 (random data), 50 of 67 in float32, and 4.3 of 4.8 TB/s.
SUSTAINED, SUSTAINED_FLOAT32, SUSTAINED_COPY = 0.8, 0.75, 0.9
# Seconds of the host for one operation of PyTorch, and of one inside a CUDA graph.
LAUNCH, GRAPH_NODE = 6e-6, 1.5e-6


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


@dataclass(frozen=True)
class Gpu:
    """memory: bytes. flops: operations a second of large products, by precision. bandwidth and
    link: bytes a second of the memory, and to another device of the node. launch and graph_node:
    seconds for each operation. device: its type in PyTorch."""

    name: str
    memory: float
    bfloat16: float
    float32: float
    bandwidth: float
    link: float
    launch: float = LAUNCH
    graph_node: float = GRAPH_NODE
    device: str = "cuda"

    def flops(self, dtype: str) -> float:
        """Operations a second in bfloat16 or float32."""
        return self.bfloat16 if dtype == "bfloat16" else self.float32


def datasheet(
    name: str, gigabytes: float, half: float, single: float, terabytes: float, link: float
) -> Gpu:
    """A GPU by its datasheet: GB, dense bfloat16 and float32 TFLOP/s, TB/s, and GB/s of a link in
    one direction."""
    return Gpu(
        name,
        gigabytes * 1e9,
        half * 1e12 * SUSTAINED,
        single * 1e12 * SUSTAINED_FLOAT32,
        terabytes * 1e12 * SUSTAINED_COPY,
        link * 1e9 * SUSTAINED_COPY,
    )


GPUS = {
    gpu.name: gpu
    for gpu in (
        datasheet("b200", 180, 2250, 75, 8.0, 900),
        datasheet("h200", 141, 989, 67, 4.8, 450),
        datasheet("h100", 80, 989, 67, 3.35, 450),
        datasheet("a100", 80, 312, 19.5, 2.04, 300),
        datasheet("a100_40", 40, 312, 19.5, 1.555, 300),
        datasheet("l40s", 48, 362, 91.6, 0.864, 32),
        datasheet("a10", 24, 125, 31.2, 0.6, 32),
        datasheet("rtx_4090", 24, 165, 82.6, 1.008, 32),
    )
}


KNOWN = f"{', '.join(GPUS)}, or {HERE} for this machine's own device, which is measured"


def named(name: str) -> Gpu:
    """A GPU of the table, in letters of either case, or this machine's device, measured. Raises
    UserError for other names."""
    if name == HERE:
        return measured_here()
    if name.lower() not in GPUS:
        raise UserError(f"--gpu {name}: choose {KNOWN}")
    return GPUS[name.lower()]
