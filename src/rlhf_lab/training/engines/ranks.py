"""Which of torchrun's processes this one is, known without torch.

Operators of pods set some of torchrun's variables too. Processes find each other by MASTER_ADDR:
without it, the others are left over from something else.
"""

from __future__ import annotations

import os

from rlhf_lab.runs.signals import TORCHRUN
from rlhf_lab.types.errors import UserError

MASTER = "MASTER_ADDR"
# Set by torchrun. Removed once they are read, so that neither libraries nor child processes believe
# to be members of the group.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
# Number and size once the process group is joined, since joining removes the variables.
_joined: tuple[int, int] | None = None


def world_size() -> int:
    """Processes that torchrun started for this run, 1 without it. Raises UserError for a variable
    that is no number, as the other functions here."""
    return _joined[1] if _joined else declared("WORLD_SIZE", 1, least=1)


def rank() -> int:
    """This process's number among them, 0 without torchrun."""
    if _joined:
        return _joined[0]
    if (number := declared("RANK", 0)) >= (size := world_size()):
        raise UserError(f"RANK={number} with WORLD_SIZE={size}: ranks are 0 to {size - 1}")
    return number


def declared(name: str, otherwise: int, least: int = 0) -> int:
    """The number that a variable of torchrun holds; without MASTER_ADDR, or where it is empty,
    `otherwise`."""
    text = os.environ.get(name) if os.environ.get(MASTER) else None
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UserError(
            f"{name}={text} with {MASTER}={os.environ[MASTER]} in the environment: torchrun sets "
            f"whole numbers from {least}; start it with torchrun, or unset {MASTER}"
        )
    return int(text)


def forget() -> None:
    """Remove torchrun's variables from the environment: this process is alone, or has joined."""
    for name in VARIABLES:
        os.environ.pop(name, None)


def is_first() -> bool:
    """Whether this process reports for all: the first of torchrun's, or one that torchrun did not
    start, whatever a pod calls it."""
    return TORCHRUN not in os.environ or os.environ.get("RANK", "0") == "0"


def has_joined() -> bool:
    """Whether this process is in a process group with others."""
    return _joined is not None


def record_joined(number: int, size: int) -> None:
    """Keep what torchrun's variables held."""
    global _joined
    _joined = (number, size)
