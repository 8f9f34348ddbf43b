"""Freed memory is kept by the process instead of going back to the system.

Every forward pass asks for the same large blocks again. By default glibc returns them at once, and
the kernel has to hand out and clear fresh pages each time, which costs most where a generator and
a trainer do so at the same time. Bits do not change: tensors are aligned as before.
"""

from __future__ import annotations

import ctypes

# Names and numbers of malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST = 2**30


def keep_freed_memory() -> bool:
    """Set glibc's thresholds for this process; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(M_TRIM_THRESHOLD, LARGEST))
