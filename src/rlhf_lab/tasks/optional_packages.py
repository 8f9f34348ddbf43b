"""Packages that only some options need, which import them where they use them; and the settings and
seeds of tasks that other packages bring."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
