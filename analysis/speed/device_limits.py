"""What a device can do at best, measured, and which share of it a phase reaches.

Decoding a step reads every weight once, whatever the rows, so memory bandwidth bounds it; reading
and training do 2 and 6 operations per parameter and token (arXiv:2001.08361, section 2.1), so
arithmetic bounds them. The key-value cache and attention over the context are left out of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

COPY_BYTES = 2**28
MATRIX = {"cpu": 2048, "cuda": 8192}
TRIALS = 5


@dataclass(frozen=True)
class Limits:
    """bandwidth: bytes read or written a second. flops: operations a second."""

    bandwidth: float
    flops: float

    def decoding(self, weight_bytes: int, rows: int) -> float:
        """Most tokens a second of `rows` rows that are decoded together."""
        return rows * self.bandwidth / weight_bytes

    def training(self, parameters: int) -> float:
        """Most tokens a second that can be trained on."""
        return self.flops / (6 * parameters)

    def reading(self, parameters: int) -> float:
        """Most tokens a second of a forward pass."""
        return self.flops / (2 * parameters)


def seconds_of(action: Callable[[], object], trials: int, device: str) -> list[float]:
    """Seconds of each trial, after one that is not counted; a device's queue is waited for."""
    found = []
    for _ in range(trials + 1):
        start = perf_counter()
        action()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(perf_counter() - start)
    return found[1:]


def measured(device: str, dtype: torch.dtype) -> Limits:
    """The limits of a device at a dtype, with the present number of threads: the best that any
    trial reaches, since a limit that somebody else's work lowers is none."""
    source = torch.ones(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copying = min(seconds_of(lambda: target.copy_(source), TRIALS, device))
    size = MATRIX[device]
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    product = torch.empty_like(matrix)
    multiplying = min(seconds_of(lambda: torch.mm(matrix, matrix, out=product), TRIALS, device))
    # A copy reads and writes each byte; a product of n x n has n^3 multiplications and additions.
    return Limits(2 * COPY_BYTES / copying, 2 * size**3 / multiplying)
