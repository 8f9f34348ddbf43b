"""Calls of code that users bring: rewards, verifiers, environments.

Such code returns a value or raises, and leaves the process as it was. Anything else it does becomes
a ForeignFailure, which is handled as every error of a rollout: a checkpoint is saved, the manifest
gets the state `failed`, and the command ends with exit code 1.

It runs in the run's own process, unless it has a time limit. A call costs about 30 microseconds
there, and ten times that in a child, which also needs memory and seconds to start. What no process
can catch (a crash, C code that exits) ends the run too: the exit code is that of the crash, its
stack is printed, `rlhf-lab runs` shows the run as died, a sweep reports its job as failed whatever
the exit code was, and `rlhf-lab resume` resumes from the last checkpoint. With a time limit even
these become a ForeignFailure.

Such code may use global random numbers: no run draws from them.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rlhf_lab.runs.foreign import exits, state
from rlhf_lab.runs.foreign.arguments import changed, copied
from rlhf_lab.types.errors import StopRequested

T = TypeVar("T")
REMEDY = "return a value or raise an exception, and leave the process as it was"


class ForeignFailure(RuntimeError):
    """Foreign code raised, or did what it must not. The message names the code, what it did, and
    the remedy."""


class Unrestored(ForeignFailure):
    """It changed what cannot be restored: the run must end, even where failures are dropped."""


def call(name: str, function: Callable[..., T], /, *given: Any, **named: Any) -> T:
    """The function's value for copies of these arguments.

    name: of the function in messages. Raises ForeignFailure, and what a signal raises meanwhile.
    """
    exits.install()
    passed, passed_by_name = copied(given), copied(named)
    before = state.now()
    value: Any = None
    error: BaseException | None = None
    with exits.Watch() as watch:
        try:
            value = function(*passed, **passed_by_name)
        except BaseException as raised:
            error = raised
        watch.end_copies()
    changes = state.restore_changes(before)
    if interrupt := interruption(watch, error):
        raise interrupt
    deeds = [*ending(watch, error), *(change.text for change in changes)]
    if error is None and (changed(given, passed) or changed(named, passed_by_name)):
        deeds.append("changed its arguments (copy them first)")
    if deeds:
        kind = ForeignFailure if all(change.is_undone for change in changes) else Unrestored
        remedy = "" if is_plain(error) and len(deeds) == 1 else f": {REMEDY}"
        raise kind(f"{name} {' and '.join(deeds)}{remedy}") from error
    return value  # type: ignore[no-any-return]


def interruption(watch: exits.Watch, error: BaseException | None) -> BaseException | None:
    """The exception of a signal that came during the call, even if the code caught it."""
    if isinstance(error, StopRequested) and raised_in(error) == "rlhf_lab.runs.signals":
        return error
    if not watch.was_interrupted:
        return None
    return error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()


def raised_in(error: BaseException) -> str:
    """The name of the module whose code raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""


def ending(watch: exits.Watch, error: BaseException | None) -> Iterator[str]:
    """How the code ended, where it did not simply return."""
    if watch.attempts:
        yield f"called {', '.join(watch.attempts)}"
    elif is_plain(error):
        yield f"failed ({described(error)})"
    elif isinstance(error, SystemExit):
        yield f"called sys.exit({shown(error.code)})"
    elif isinstance(error, KeyboardInterrupt | StopRequested):
        yield f"raised {described(error)} without a signal"
    elif error is not None:
        yield f"raised {described(error)}"
    if watch.had_copies:
        yield "forked, and the copy of the process went on with the run (it was ended)"


def is_plain(error: BaseException | None) -> bool:
    """Whether an error is an ordinary one, which code may raise."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def described(error: BaseException | None) -> str:
    """An error's type and text, also if str() of it fails."""
    try:
        text = str(error)
    except BaseException:
        text = "str() of it failed"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown(value: object) -> str:
    """A value in a message, shortened."""
    return reprlib.repr(value)


@contextmanager
def no_quiet_end() -> Iterator[None]:
    """Make sys.exit inside of the block an error: it must not look like the end of a command."""
    pid = os.getpid()
    try:
        yield
    except SystemExit as error:
        if os.getpid() != pid:
            raise
        raise RuntimeError(
            f"sys.exit({shown(error.code)}) was called in the middle of the run: {REMEDY}"
        ) from error


def on_sample(error: ForeignFailure, uid: str, text: str) -> ForeignFailure:
    """The same failure, naming the sample at which it occurred."""
    return type(error)(f"{uid}: {error} on the answer {text!r}")
