"""Weights in shared memory: written once per version, read by generators in other processes.

The memory has no name (torch hands over descriptors), so nothing is left of it when the processes
end, however they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from rlhf_lab.models.weights import weights_digest
from rlhf_lab.types.data import Weights

BEING_WRITTEN = -1
DIGEST_BYTES = 32


def shared_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros in memory that a child process sees too."""
    return torch.zeros(shape, dtype=dtype).share_memory_()  # type: ignore[no-untyped-call, no-any-return]


class SharedWeights:
    """A few slots, each with one version, its number and its digest. One process writes.

    state: names, shapes and dtypes of the tensors. Pickled to a child process, it is the same
    memory there.
    """

    def __init__(self, state: Mapping[str, Tensor], num_slots: int) -> None:
        self._layout = [(name, t.dtype, tuple(t.shape), t.nbytes) for name, t in state.items()]
        size = sum(nbytes for *_, nbytes in self._layout)
        self._bytes = shared_zeros((num_slots, size), torch.uint8)
        self._digests = shared_zeros((num_slots, DIGEST_BYTES), torch.uint8)
        self._versions = shared_zeros((num_slots,), torch.long).fill_(BEING_WRITTEN)
        self._pins = [0] * num_slots

    def write(self, weights: Weights) -> None:
        """Put a version where the oldest one is that no pin holds."""
        free = [slot for slot, pins in enumerate(self._pins) if not pins]
        if not free:
            raise RuntimeError(
                f"all {len(self._pins)} slots of shared weights are in use at version "
                f"{weights.version}: a chunk was never finished"
            )
        slot = min(free, key=lambda place: int(self._versions[place]))
        self._versions[slot] = BEING_WRITTEN
        for part, (name, *_) in zip(self._parts(slot), self._layout, strict=True):
            part.copy_(weights.state[name].detach().contiguous().view(-1).view(torch.uint8))
        self._digests[slot] = torch.frombuffer(
            bytearray.fromhex(weights_digest(weights)), dtype=torch.uint8
        )
        self._versions[slot] = weights.version

    def holds(self, version: int) -> bool:
        """Whether some slot has this version."""
        return version in self._versions.tolist()

    def pin(self, version: int, amount: int) -> None:
        """Keep a version (amount 1) until it is let go (amount -1)."""
        self._pins[self._versions.tolist().index(version)] += amount

    def newest(self) -> int:
        """The newest version that is whole."""
        return int(self._versions.max())

    def read(self, version: int) -> Weights:
        """A copy of a version. Raises LookupError if it was overwritten before the copy was done.

        The copy has memory of its own: kernels may round differently on unaligned memory.
        """
        slots = self._versions.tolist()
        if version not in slots:
            raise LookupError(f"weights of version {version} are no longer in shared memory")
        slot = slots.index(version)
        digest = bytes(self._digests[slot].tolist()).hex()
        state = {
            name: part.clone().view(dtype).view(shape)
            for part, (name, dtype, shape, _) in zip(self._parts(slot), self._layout, strict=True)
        }
        weights = Weights(version, state)
        if int(self._versions[slot]) != version:
            raise LookupError(f"weights of version {version} were overwritten while being read")
        if weights_digest(weights) != digest:
            raise RuntimeError(
                f"weights of version {version} in shared memory are damaged: their digest differs"
            )
        return weights

    def _parts(self, slot: int) -> Iterator[Tensor]:
        start = 0
        for *_, nbytes in self._layout:
            yield self._bytes[slot, start : start + nbytes]
            start += nbytes
