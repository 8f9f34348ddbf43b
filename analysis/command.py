"""How commands of the analysis end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rlhf_lab.types import UserError


def exit_code(name: str, work: Callable[[], object]) -> int:
    """0 when the work is done; 2, and on stderr what was wrong, if it raises UserError."""
    try:
        work()
    except UserError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    return 0
