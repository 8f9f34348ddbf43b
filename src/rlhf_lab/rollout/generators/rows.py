"""The rows of a chunk that a decode loop writes, and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

# Loads the weights that write the token at this step; returns their version.
Load = Callable[[int], int]


@dataclass(frozen=True)
class Rows:
    """The rows to write: `texts` (token ids), each read once for `repeats` consecutive rows.

    number_B: index of each row among the chunk's samples. start: tokens that every row has already,
    by which weights are read; 0 for turns, each of which one version writes.
    uniform_BT: one random number for each new token, of which there are T at most. is_greedy_B:
    None where no row is greedy.
    """

    texts: Sequence[Sequence[int]]
    repeats: int
    number_B: Tensor
    start: int
    uniform_BT: Tensor
    is_greedy_B: Tensor | None


@dataclass(frozen=True)
class WrittenTokens:
    """New tokens and their log-probs, BT (what follows an end token is ignored), and the version
    that wrote each column."""

    token_BT: Tensor
    logp_BT: Tensor
    versions: list[int]
