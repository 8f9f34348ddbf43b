"""How a command ends: its exit code, and what it prints when it ends early."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from rlhf_lab.runs.disk import FULL, disk_error, disk_error_text
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import TORCHRUN
from rlhf_lab.types.errors import JobsFailed, StopRequested, UserError

INTERRUPTED = 130
BAD_INPUT = 2
FAILED = 1
# What sysexits.h calls a temporary failure: a scheduler should run the same command again.
REQUEUE = 75

# Lines of Hydra's errors that do not help the user of a command.
OF_HYDRA = ("Config search path:", "provider=", "See https://hydra.cc")


def refusals() -> tuple[type[Exception], ...]:
    """Errors by which a command refuses its input. Hydra is imported only once one is raised: it
    takes longer than `rlhf-lab --help` does."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return (UserError, HydraException, OmegaConfBaseException)


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a command; if it ends early, print why in one line. Other errors are raised."""
    try:
        return run()
    except refusals() as error:
        # Under torchrun every process refuses the same.
        if TORCHRUN not in os.environ or os.environ.get("RANK", "0") == "0":
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


def end_rank(code: int) -> NoReturn:
    """End a process of several as Python does, but without taking what is left of torch apart.

    Its caches keep process groups: threads of gloo may hold their tensors while Python's objects
    go: then the process aborts (SIGABRT), and the run counts as failed.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def complain(command: str, text: str) -> None:
    """Print a line about a command to standard error."""
    sys.stderr.write(f"rlhf-lab {command}: {text}\n")


def message(error: BaseException) -> str:
    """An error in one line, in the words of the project where Hydra refused something: with the
    cause that Hydra keeps behind it (the key and its allowed values), and with its notes, such as
    the job of a sweep."""
    text = str(error)
    if not isinstance(error, UserError):
        from rlhf_lab.experiment.config.suggestions import explained

        if known := explained(error):
            text = known
        elif error.__cause__ is not None:
            text = f"{error}: {error.__cause__}"
    notes = "; ".join(getattr(error, "__notes__", []))
    lines = (f"{text} ({notes})" if notes else text).splitlines()
    lines = [line for line in lines if not line.strip().startswith(OF_HYDRA)]
    return masked(" ".join(line.strip() for line in lines if line.strip()))
