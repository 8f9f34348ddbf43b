"""Turn errors of an analysis command into its message and exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rlhf_lab.runs.disk import FULL, disk_error, disk_error_text
from rlhf_lab.types.errors import UserError


def exit_code(name: str, work: Callable[[], object]) -> int:
    """0 when the work is done; 2, and on stderr what was wrong, if it raises UserError or meets a
    folder that cannot be written; 1 if the disk is full."""
    try:
        work()
    except UserError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    except OSError as error:
        if (fault := disk_error(error)) is None:
            raise
        sys.stderr.write(f"{name}: {disk_error_text(fault)}\n")
        return 1 if fault.errno in FULL else 2
    return 0
