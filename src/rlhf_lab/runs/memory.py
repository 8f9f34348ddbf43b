"""Memory: errors that name the phase and the remedy, peaks, and glibc's thresholds.

Every forward pass allocates the same large blocks again. By default glibc returns them to the
kernel at once, which then has to clear fresh pages each time; that costs most where a generator and
a trainer do so at the same time. With higher thresholds the process keeps them. Bits do not change:
tensors are aligned as before.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Names and numbers of malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST = 2**30
# Larger blocks are the logits of a large vocabulary: kept, their gaps would cost more than their
# pages, since the next block is rarely of the same size.
KEPT_BLOCK = 2**25

# Of allocators other than CUDA's, in a plain RuntimeError.
SHORTAGES = ("can't allocate memory", "out of memory", "not enough memory")


class OutOfMemory(RuntimeError):
    """A phase needs more memory than there is: the message names it and the keys to lower."""


@contextmanager
def memory_for(phase: str, remedy: str) -> Iterator[None]:
    """Raise OutOfMemory with the phase and the remedy if memory runs out inside the block."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OutOfMemory(f"out of memory in {phase} ({reason}): lower {remedy}") from error


def is_shortage(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on a device or on the host."""
    if isinstance(error, OutOfMemory):
        return False
    torch = sys.modules.get("torch")  # absent in processes without it
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    return any(text in str(error).lower() for text in SHORTAGES)


def keep_freed_memory() -> bool:
    """Set glibc's thresholds for this process; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK)) and bool(mallopt(M_TRIM_THRESHOLD, LARGEST))


def peak_bytes(device: torch.device) -> dict[str, int]:
    """Largest memory of this process so far: resident on the host, allocated on a CUDA device."""
    peak = {"resident_bytes": resident_bytes(resource.RUSAGE_SELF)}
    if device.type == "cuda":
        import torch

        peak["device_bytes"] = torch.cuda.max_memory_allocated(device)
    return peak


_largest_counted = 0


def count_as_child(pid: int) -> None:
    """Count the memory of a process that is about to end as a child's: its parent is the fork
    server."""
    global _largest_counted
    with suppress(OSError):  # it has ended, or this system has no such file
        for line in Path(f"/proc/{pid}/status").read_bytes().decode(errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                _largest_counted = max(_largest_counted, int(line.split()[1]) * 1024)


def resident_bytes(who: int) -> int:
    """Largest resident size so far of one of getrusage's: this process, or its largest child."""
    unit = 1 if sys.platform == "darwin" else 1024
    counted = _largest_counted if who == resource.RUSAGE_CHILDREN else 0
    return max(resource.getrusage(who).ru_maxrss * unit, counted)
