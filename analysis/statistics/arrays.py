"""Check arrays: finite numbers, the expected dimensions, equal lengths."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlhf_lab.types.errors import UserError

Floats: TypeAlias = NDArray[np.float64]


def require_finite(name: str, given: ArrayLike, dimensions: Sequence[int]) -> Floats:
    """The numbers as float64. Raises UserError, with the place, if one is not finite."""
    try:
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} is no array of numbers ({error}): rows of different lengths go into a "
            "mapping from task to the scores of its seeds"
        ) from error
    if values.ndim not in dimensions:
        wanted = " or ".join(map(str, dimensions))
        raise UserError(f"{name} has {values.ndim} dimensions: pass an array with {wanted}")
    if values.size == 0:
        raise UserError(f"{name} is empty: pass at least one number")
    if bad := np.argwhere(~np.isfinite(values)).tolist():
        place = ", ".join(map(str, bad[0]))
        others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise UserError(
            f"{name}[{place}] is {values[tuple(bad[0])]}{others}: leave that run out, or state "
            "which score it is to count as"
        )
    return values


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """A random generator for each purpose, so that computing one result changes no other."""
    digest = hashlib.sha256("\0".join(purpose).encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest[:16], dtype="<u4").tolist()])


def same_length(**given: Floats) -> None:
    """Raises UserError if two arrays differ in their first dimension."""
    lengths = {name: len(values) for name, values in given.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UserError(
            f"lengths differ ({counts}): pass one value of each for every seed or point"
        )
