"""Which of torchrun's processes this one is, known without torch."""

from __future__ import annotations

import os

# Number and size once the process group is joined, since joining removes the variables.
_joined: tuple[int, int] | None = None


def world_size() -> int:
    """Processes that torchrun started for this run, 1 without it."""
    return _joined[1] if _joined else int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """This process's number among them, 0 without torchrun."""
    return _joined[0] if _joined else int(os.environ.get("RANK", "0"))


def has_joined() -> bool:
    """Whether this process is in a process group with others."""
    return _joined is not None


def record_joined(number: int, size: int) -> None:
    """Keep what torchrun's variables held."""
    global _joined
    _joined = (number, size)
