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
    by which weights are read, or turns that their episodes have.
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


def require_numbers(logp: Tensor, version: int) -> None:
    """Raise where log-probs are NaN, which elsewhere means that the writer is unknown."""
    if bool(logp.isnan().any()):
        raise FloatingPointError(
            f"the policy's log-probs are NaN at version {version}: no sample was made"
        )
