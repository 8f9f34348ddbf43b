"""The one way in which a run calls code that is not the lab's: rewards, verifiers, environments.

Such code gives a value or raises, and leaves the process as it was. Whatever else it does becomes a
ForeignFailure, which goes the way of every error of a rollout: a checkpoint is saved, the manifest
gets the state `failed`, and the command ends with exit code 1.

It runs in the run's own process, unless it has a time limit. A call costs about 30 microseconds
here, and ten times that in a child, which also needs memory and seconds to start; so the child is
for what needs it. What no process can catch (a crash, C code that exits) ends the run with it: the
exit code is that of the crash, its stack is printed, `rlhf-lab runs` shows the run as died, a sweep
reports its job as failed whatever the exit code was, and `rlhf-lab resume` goes on from the last
checkpoint. A time limit turns even these into a ForeignFailure.

Global random numbers are the code's own: no run draws from them.
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
    """Code that is not the lab's raised, or did what it must not. The message names the code, what
    it did, and what to do about it."""


class Unrestored(ForeignFailure):
    """It changed what cannot be restored: the run must end, even where failures are dropped."""


def call(name: str, function: Callable[..., T], /, *given: Any, **named: Any) -> T:
    """What the function returns for copies of these arguments.

    name: how messages name it. Raises ForeignFailure, and what a signal raises meanwhile.
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
    changes = state.restored(before)
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
    """What a signal raised inside of the code, or would have, had the code not caught it."""
    if isinstance(error, StopRequested) and raised_in(error) == "rlhf_lab.runs.signals":
        return error
    if not watch.was_interrupted:
        return None
    return error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()


def raised_in(error: BaseException) -> str:
    """Name of the module whose code raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""


def ending(watch: exits.Watch, error: BaseException | None) -> Iterator[str]:
    """In what ways the code did not come back as it should."""
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
    """Whether an error is one that code may raise to tell that it failed."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def described(error: BaseException | None) -> str:
    """An error's type and text, even if it has no text that could be had."""
    try:
        text = str(error)
    except BaseException:
        text = "its text could not be had"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shown(value: object) -> str:
    """A value as a message repeats it."""
    return reprlib.repr(value)


@contextmanager
def no_quiet_end() -> Iterator[None]:
    """Whoever calls sys.exit inside of the block has failed: a command has no such end."""
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
    """The same failure with the sample on which it came."""
    return type(error)(f"{uid}: {error} on the answer {text!r}")
