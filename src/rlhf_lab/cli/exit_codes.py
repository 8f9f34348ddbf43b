"""How a command ends: its exit code, and what it prints when it ends early."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from rlhf_lab.runs.disk import FULL, disk_error, disk_error_text
from rlhf_lab.runs.foreign import ForeignFailure, described, ending, own_frames
from rlhf_lab.runs.output import printable
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import INTERRUPTED as INTERRUPTED
from rlhf_lab.runs.signals import REQUEUE as REQUEUE
from rlhf_lab.training.engines.ranks import is_first
from rlhf_lab.types.errors import (
    RUN_FAILED,
    JobsFailed,
    RecordChanged,
    StopRequested,
    UserError,
)

BAD_INPUT = 2
FAILED = 1
MOST_CHARACTERS = 600

# Lines of Hydra's errors that do not help the user of a command.
OF_HYDRA = ("Config search path:", "provider=", "See https://hydra.cc")


def refusals() -> tuple[type[Exception], ...]:
    """Errors by which a command refuses its input. Hydra is imported only once one is raised: it
    takes longer than `rlhf-lab --help` does."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return (UserError, HydraException, OmegaConfBaseException)


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a command; if it ends early, print why in one line, and the frames of the user's own code
    where a run failed. Other errors are raised."""
    try:
        return run()
    except refusals() as error:
        # Under torchrun every process refuses the same.
        if is_first():
            complain(command, message(error))
        return BAD_INPUT
    except StopRequested as stop:
        complain(command, f"stopped by a signal; {str(stop) or 'the same command goes on'}")
        return REQUEUE
    except (JobsFailed, RecordChanged) as error:
        complain(command, message(error))
        return FAILED
    except (Exception, SystemExit) as error:
        fault = disk_error(error)
        notes = [note for note in getattr(error, "__notes__", []) if note.startswith(RUN_FAILED)]
        if not (fault or notes or isinstance(error, ForeignFailure)):
            raise
        text = disk_error_text(fault) if fault else shortened(failure_text(error))
        trace = "" if fault else "".join(traceback.format_exception(error))
        complain(command, "\n".join(["; ".join([text, *notes]), *own_frames(trace)]))
        return FAILED if notes or fault is None or fault.errno in FULL else BAD_INPUT
    except KeyboardInterrupt as interrupt:
        complain(command, f"interrupted; {str(interrupt) or 'what was written stays readable'}")
        return INTERRUPTED


def failure_text(error: BaseException) -> str:
    """What failed: the name of the user's code is in the message of its failure."""
    if isinstance(error, SystemExit):
        return ending(error)
    return str(error) if isinstance(error, ForeignFailure) else described(error)


def shortened(text: str) -> str:
    """The first line of a text, without its middle where that is long: answers may be in it."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    half = MOST_CHARACTERS // 2
    return line if len(line) <= MOST_CHARACTERS else f"{line[:half]} ... {line[-half:]}"


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
    sys.stderr.write(printable(masked(f"rlhf-lab {command}: {text}\n")))


def show_traceback(error: BaseException) -> None:
    """Print an error that no command expects, as Python does, without secrets and what a terminal
    would obey: messages quote what others wrote."""
    sys.stderr.write(printable(masked("".join(traceback.format_exception(error)))))


def mask_tracebacks() -> None:
    """Let this process print its errors so, those of its threads too, where nothing else does."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda _, error, __: show_traceback(error)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = lambda facts: show_traceback(facts.exc_value or SystemExit())


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
