"""Measure a device's best bandwidth and arithmetic, as limits for the phases of a round.

Training does 6 operations per parameter and token (arXiv:2001.08361, section 2.1), so arithmetic
bounds it. Attention over the context is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.speed.clock import seconds_of

# Far beyond the caches of a GPU; of a CPU, a share of its memory.
COPY_BYTES = {"cpu": 2**28, "cuda": 2**32}
MATRIX = {"cpu": 2048, "cuda": 8192}
SMALL_COPY_BYTES, SMALL_MATRIX = 2**24, 256
TRIALS = 5


@dataclass(frozen=True)
class Limits:
    """bandwidth: bytes read or written a second. flops: operations a second."""

    bandwidth: float
    flops: float


def measure_limits(device: str, dtype: torch.dtype, is_small: bool = False) -> Limits:
    """The limits of a device at a dtype, with the present number of threads: the best that any
    trial reaches, since other work on the machine lowers no limit.

    Data are random: on constant ones a GPU draws less power and calculates faster than it ever does
    in training. is_small: of sizes that take no time and measure nothing.
    """
    kind, rng = torch.device(device).type, torch.Generator(device).manual_seed(0)
    num_bytes = SMALL_COPY_BYTES if is_small else COPY_BYTES[kind]
    size = SMALL_MATRIX if is_small else MATRIX[kind]
    source = torch.randint(256, (num_bytes,), dtype=torch.uint8, device=device, generator=rng)
    target = torch.empty_like(source)
    copying = min(seconds_of(lambda: target.copy_(source), TRIALS, kind))
    left, right = (
        torch.randn(size, size, device=device, generator=rng).to(dtype) for _ in range(2)
    )
    product = torch.empty_like(left)
    multiplying = min(seconds_of(lambda: torch.mm(left, right, out=product), TRIALS, kind))
    # A copy reads and writes each byte; a product of n x n has n^3 multiplications and additions.
    return Limits(2 * num_bytes / copying, 2 * size**3 / multiplying)
