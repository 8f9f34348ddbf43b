"""Randomness keyed by what it is for, never by when it happens."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def stable_hash(*parts: int | str) -> int:
    """64 bits of the parts, the same in every process, on every machine, in every version.

    Parts are distinguished by type and length, so (1, "2") and (12, "") differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        encoded = f"{type(part).__name__}:{part}".encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return int.from_bytes(digest.digest(), "little")


def uniforms(seed: int, prompt_id: int, sample: int, count: int) -> np.ndarray:
    """`count` float64 in [0, 1); the t-th belongs to token position t of this sample.

    Counter-based (Philox): a longer request begins with the numbers of a shorter one.
    """
    import numpy as np  # commands that only read or refuse wait for no numpy

    key = stable_hash(seed, prompt_id, sample)
    return np.random.Generator(np.random.Philox(key=key)).random(count)
