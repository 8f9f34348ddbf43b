"""Named GPUs: their figures, published and measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.types.errors import UserError

MATRIX, COPY_BYTES, TRIALS, SMALL_OPERATIONS = 1024, 2**26, 5, 2000
HERE, CHECKED = "this", "gpu_check.jsonl"
# Findings of `make gpu-check` that a GPU's figures are, with their units.
FIGURES = {
    "bfloat16": ("matrix product, bfloat16", 1e12),
    "float32": ("matrix product, float32", 1e12),
    "bandwidth": ("copy on the device", 1e12),
    "launch": ("launch of an operation", 1e-6),
    "graph_node": ("node of a CUDA graph", 1e-6),
}
# Shares of a datasheet's numbers that large products and copies reach, as on the measured H200.
SUSTAINED, SUSTAINED_FLOAT32, SUSTAINED_COPY = 0.79, 0.75, 0.87
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
        # Measured by `make gpu-check`; the tables of docs/gpu.md.
        replace(
            datasheet("h200", 141, 989, 67, 4.8, 450),
            bfloat16=779.2e12,
            float32=50.81e12,
            bandwidth=4.192e12,
            launch=6.85e-6,
            graph_node=0.8958e-6,
        ),
        datasheet("h100", 80, 989, 67, 3.35, 450),
        datasheet("a100", 80, 312, 19.5, 2.04, 300),
        datasheet("a100_40", 40, 312, 19.5, 1.555, 300),
        datasheet("l40s", 48, 362, 91.6, 0.864, 32),
        datasheet("a10", 24, 125, 31.2, 0.6, 32),
        datasheet("rtx_4090", 24, 165, 82.6, 1.008, 32),
    )
}


KNOWN = (
    f"{', '.join(GPUS)}, {HERE} for this machine's own device, which is measured, or the "
    f"{CHECKED} of `make gpu-check`"
)


def named(name: str) -> Gpu:
    """A GPU of the table, in letters of either case; this machine's device, measured; or the one
    that a file of `make gpu-check` measured. Raises UserError for other names."""
    if name == HERE:
        return measured_here()
    if is_measured(name):
        return measured_in(Path(name))
    if name.lower() not in GPUS:
        raise UserError(f"--gpu {name}: choose {KNOWN}")
    return GPUS[name.lower()]


def is_measured(name: str) -> bool:
    """Whether a name is the path of a file of `make gpu-check`."""
    return name.endswith(".jsonl")


def findings_of(path: Path) -> dict[str, Any]:
    """The measured values of a file of `make gpu-check`, by name; of two, the later."""
    return {row["name"]: row["measured"] for row in read_rows(path) if "name" in row}


def measured_in(path: Path) -> Gpu:
    """The GPU that a file of `make gpu-check` measured. Its link to other devices is that of the
    table's GPU of that name, else its copies to the host. Raises UserError where figures are
    missing."""
    facts: dict[str, Any] = {}
    for row in read_rows(path):
        facts = row.get("facts", facts)
    found = findings_of(path)
    missing = [name for name, _ in FIGURES.values() if name not in found]
    if missing or "memory_gib" not in facts:
        lacks = missing[0] if missing else "memory_gib"
        raise UserError(
            f"--gpu {path}: it has no {lacks}; pass the {CHECKED} of `make gpu-check SECTIONS=0` "
            "on a GPU"
        )
    name = str(facts["name"])
    alike = (gpu for key, gpu in GPUS.items() if key.replace("_", " ") in name.lower())
    base = next(alike, None)
    link = base.link if base else found.get("copy to the device, pinned", 0) * 1e9
    figures = {key: unit * found[finding] for key, (finding, unit) in FIGURES.items()}
    return Gpu(name=name, memory=facts["memory_gib"] * 2**30, link=link, **figures)
