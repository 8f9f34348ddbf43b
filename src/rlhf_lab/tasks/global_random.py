"""Global random numbers of Python and NumPy, for code that draws from them: seeded for one call,
or kept apart for each of many that take turns."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Of all that uses one of these: the state is the process's own.
ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global random number generators; restore their state afterwards."""
    with RandomNumbers(seed).drawn():
        yield


@dataclass
class RandomNumbers:
    """Global random numbers as if there were no other user of them. seed: of the first."""

    seed: int
    _states: tuple[Any, Any] | None = field(default=None, init=False, repr=False)

    @contextlib.contextmanager
    def drawn(self) -> Iterator[None]:
        """What runs within goes on in this sequence of numbers, and leaves no trace in others. One
        thread at a time, whatever instances there are."""
        with ONE_AT_A_TIME:
            others = states()
            if self._states is None:
                random.seed(self.seed)
                np.random.seed(self.seed % 2**32)
            else:
                restore(self._states)
            try:
                yield
            finally:
                self._states = states()
                restore(others)


def states() -> tuple[Any, Any]:
    """Of both generators."""
    return random.getstate(), np.random.get_state()


def restore(both: tuple[Any, Any]) -> None:
    """Set both generators to what `states` returned."""
    random.setstate(both[0])
    np.random.set_state(both[1])
