"""What GPUs can do, by name.

It imports no torch: a name that is missing or unknown is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.types.errors import UserError

HERE = "this"
# Shares of a datasheet's numbers that large products and copies reach: on an H200, 790 of 989
# TFLOP/s in bfloat16 (random data), 50 of 67 in float32, and 4.3 of 4.8 TB/s.
SUSTAINED, SUSTAINED_FLOAT32, SUSTAINED_COPY = 0.8, 0.75, 0.9
# Seconds of the host for one operation of PyTorch, and of one inside a CUDA graph.
LAUNCH, GRAPH_NODE = 6e-6, 1.5e-6


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
        from rlhf_lab.experiment.planning.layouts.measured_gpu import measured_here

        return measured_here()
    if name.lower() not in GPUS:
        raise UserError(f"--gpu {name}: choose {KNOWN}")
    return GPUS[name.lower()]
