"""Seeds of rows that are drawn from seed + number: splits need ranges of seeds that never meet."""

from __future__ import annotations

from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Split

SEEDS_PER_SPLIT = 2**30
MOST_ROWS = 2**29


def first_seed(name: str, world_seed: int, split: Split) -> int:
    """The seed of row 0 of a split, below 2^32 with those of all its rows (at most MOST_ROWS).
    name: of the task."""
    start = list(Split).index(split) * SEEDS_PER_SPLIT
    return start + stable_hash(world_seed, name) % (SEEDS_PER_SPLIT - MOST_ROWS)
