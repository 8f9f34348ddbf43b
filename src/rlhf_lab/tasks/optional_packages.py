"""Packages that only some options need, which import them where they use them; and what tasks of
other packages share: settings, seeds of rows, and global random numbers of Python and NumPy."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Split


def require_package(module: str, extra: str, option: str, otherwise: str = "") -> None:
    """Refuse an option whose module is not installed. extra: the extra that installs it.
    otherwise: another remedy."""
    if find_spec(module) is None:
        raise UserError(
            f"{option} needs the package {module.replace('_', '-')}: "
            f"pip install 'rlhf-lab[{extra}]'{f', or {otherwise}' if otherwise else ''}"
        )


@contextmanager
def importing() -> Iterator[None]:
    """For the first import of a package that was never compiled: Python warns of strings in it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        yield


def json_settings(option: str, text: str, example: str) -> dict[str, Any]:
    """The settings in the text of task.OPTION. Raises UserError if it is no JSON object; example:
    one that is."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        quoted = example.replace('"', '\\"')
        raise UserError(
            f"task.{option}={text} is not JSON ({error}): pass an object, as in "
            f"'task.{option}=\"{quoted}\"'"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"task.{option}={text} is not a JSON object: write it in braces")
    return settings


SEEDS_PER_SPLIT = 2**30
MOST_ROWS = 2**29


def first_seed(name: str, world_seed: int, split: Split) -> int:
    """The seed of row 0 of a split, below 2^32 with those of all its rows (at most MOST_ROWS), for
    rows that are drawn from seed + number: ranges of splits never meet. name: of the task."""
    start = list(Split).index(split) * SEEDS_PER_SPLIT
    return start + stable_hash(world_seed, name) % (SEEDS_PER_SPLIT - MOST_ROWS)


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
        """The code within draws the next numbers of this sequence, and others are left as they
        are. One thread at a time, whatever instances there are."""
        import numpy as np  # commands that only read or refuse wait for no numpy

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
    import numpy as np

    return random.getstate(), np.random.get_state()


def restore(both: tuple[Any, Any]) -> None:
    """Set both generators to what `states` returned."""
    import numpy as np

    random.setstate(both[0])
    np.random.set_state(both[1])
