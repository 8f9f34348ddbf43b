"""Shared memory of trainer and generators: weights, written once per version, and heartbeats.

On Linux the memory has no name (torch sends descriptors to children), so that it is freed when the
processes end, however they end. On macOS a helper of torch's holds names and frees them when the
processes have ended, unless it is killed itself.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from rlhf_lab.models.weights import weights_digest
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError

SHARED_MEMORY = Path("/dev/shm")
BEING_WRITTEN = -1
DIGEST_BYTES = 32
# Of larger versions no digest is made: SHA-256 takes a second for one or two GB, twice a version,
# while trainer and generators wait.
CHECKED_BYTES = 2**28


def shared_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros in memory that child processes share."""
    return torch.zeros(shape, dtype=dtype).share_memory_()  # type: ignore[no-untyped-call, no-any-return]


def require_shared_memory(num_slots: int, size: int) -> None:
    """Refuse versions that the shared memory of this machine cannot hold, or shared memory that
    cannot be written. Containers often have 64 MiB of it, and a process that writes beyond the end
    is killed without a message.

    size: bytes of one version.
    """
    if not SHARED_MEMORY.is_dir():
        return
    if not os.access(SHARED_MEMORY, os.W_OK):
        raise UserError(
            f"mode.executor=process keeps versions of the weights in shared memory, and "
            f"{SHARED_MEMORY} cannot be written: mount it with write access, or pass "
            "mode.executor=thread"
        )
    free = shutil.disk_usage(SHARED_MEMORY).free
    if num_slots * size > free:
        raise UserError(
            f"mode.executor=process keeps {num_slots} versions of the weights in shared memory: "
            f"{num_slots * size / 2**30:.2f} GiB, and {SHARED_MEMORY} has {free / 2**30:.2f} GiB "
            "free; enlarge it (a container: --shm-size), lower mode.max_staleness, or pass "
            "mode.executor=thread"
        )


class SharedWeights:
    """Slots, each with the weights of one version and its number. One process writes.

    Versions of at most `checked_bytes` also have a digest, which is checked when one is read.

    state: for names, shapes and dtypes of the tensors. Sent to a child process, it is the same
    memory there.
    """

    def __init__(
        self, state: Mapping[str, Tensor], num_slots: int, checked_bytes: int = CHECKED_BYTES
    ) -> None:
        self._layout = [(name, t.dtype, tuple(t.shape), t.nbytes) for name, t in state.items()]
        size = sum(nbytes for *_, nbytes in self._layout)
        require_shared_memory(num_slots, size)
        self._is_checked = size <= checked_bytes
        self._bytes = shared_zeros((num_slots, size), torch.uint8)
        self._digests = shared_zeros((num_slots, DIGEST_BYTES), torch.uint8)
        self._versions = shared_zeros((num_slots,), torch.long).fill_(BEING_WRITTEN)
        self._pins = [0] * num_slots

    def write(self, weights: Weights) -> None:
        """Write a version over the oldest one that is not pinned."""
        free = [slot for slot, pins in enumerate(self._pins) if not pins]
        if not free:
            raise RuntimeError(
                f"all {len(self._pins)} slots of shared weights are in use at version "
                f"{weights.version}: a chunk was never finished"
            )
        slot = min(free, key=lambda number: int(self._versions[number]))
        self._versions[slot] = BEING_WRITTEN
        for part, (name, *_) in zip(self._parts(slot), self._layout, strict=True):
            part.copy_(weights.state[name].detach().contiguous().view(-1).view(torch.uint8))
        if self._is_checked:
            self._digests[slot] = torch.frombuffer(
                bytearray.fromhex(weights_digest(weights)), dtype=torch.uint8
            )
        self._versions[slot] = weights.version

    def holds(self, version: int) -> bool:
        """Whether some slot has this version."""
        return version in self._versions.tolist()

    def pin(self, version: int, amount: int) -> None:
        """Add to a version's pins; a version with pins is not overwritten."""
        self._pins[self._versions.tolist().index(version)] += amount

    def newest(self) -> int:
        """The newest complete version."""
        return int(self._versions.max())

    def read(self, version: int) -> Weights:
        """A copy of a version. Raises LookupError if it was overwritten before the copy was done.

        The copy has memory of its own: kernels may round differently on unaligned memory.
        """
        slots = self._versions.tolist()
        if version not in slots:
            raise LookupError(f"weights of version {version} are not in shared memory any more")
        slot = slots.index(version)
        digest = bytes(self._digests[slot].tolist()).hex()
        state = {
            name: part.clone().view(dtype).view(shape)
            for part, (name, dtype, shape, _) in zip(self._parts(slot), self._layout, strict=True)
        }
        weights = Weights(version, state)
        if int(self._versions[slot]) != version:
            raise LookupError(f"weights of version {version} were overwritten while being read")
        if self._is_checked and weights_digest(weights) != digest:
            raise RuntimeError(
                f"weights of version {version} in shared memory are damaged: their digest differs"
            )
        return weights

    def _parts(self, slot: int) -> Iterator[Tensor]:
        start = 0
        for *_, nbytes in self._layout:
            yield self._bytes[slot, start : start + nbytes]
            start += nbytes


class Progress:
    """Seconds since a generator's last heartbeat. Heartbeats advance a counter in shared memory."""

    def __init__(self) -> None:
        self.counter = shared_zeros((1,), torch.long)
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._last = (int(self.counter), time.monotonic())
        self.is_reported = False

    def stalled_seconds(self) -> float:
        if int(self.counter) != self._last[0]:
            self.restart()
        return time.monotonic() - self._last[1]
