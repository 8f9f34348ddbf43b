"""How a command ends: its exit code, and what it prints when it ends early."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.runs.disk import FULL, disk_error, disk_error_text
from rlhf_lab.runs.secrets import masked
from rlhf_lab.types.errors import JobsFailed, StopRequested, UserError

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 1
# What sysexits.h calls a temporary failure: a scheduler should run the same command again.
REQUEUE = 75

REFUSALS = (UserError, HydraException, OmegaConfBaseException)


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a command; if it ends early, print why in one line. Other errors are raised."""
    try:
        return run()
    except REFUSALS as error:
        # Under torchrun every process refuses the same.
        if os.environ.get("RANK", "0") == "0":
            complain(command, message(error))
        return BAD_INPUT
    except StopRequested as stop:
        complain(command, f"stopped by a signal; {str(stop) or 'the same command goes on'}")
        return REQUEUE
    except OSError as error:
        if (fault := disk_error(error)) is None:
            raise
        # A run that had begun adds a note about its newest checkpoint.
        notes = "; ".join(getattr(error, "__notes__", []))
        text = disk_error_text(fault)
        complain(command, masked(f"{text}; {notes}" if notes else text))
        return FAILED if notes or fault.errno in FULL else BAD_INPUT
    except JobsFailed as error:
        complain(command, str(error))
        return FAILED
    except KeyboardInterrupt as interrupt:
        complain(command, f"interrupted; {str(interrupt) or 'what was written stays readable'}")
        return INTERRUPTED


def complain(command: str, text: str) -> None:
    """Print a line about a command to standard error."""
    sys.stderr.write(f"rlhf-lab {command}: {text}\n")


def message(error: BaseException) -> str:
    """An error in one line: with the cause that Hydra keeps behind it (the key and its allowed
    values), and with its notes, such as the job of a sweep."""
    cause = None if isinstance(error, UserError) else error.__cause__
    text = str(error) if cause is None else f"{error}: {cause}"
    notes = "; ".join(getattr(error, "__notes__", []))
    lines = (f"{text} ({notes})" if notes else text).splitlines()
    return masked(" ".join(line.strip() for line in lines if line.strip()))
