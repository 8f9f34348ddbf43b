"""The child process of a time-limited reward: it scores samples until its parent ends.

It starts in a moment, since it imports only what its judge does; torch takes seconds.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from rlhf_lab.runs.child_side import die_with, ignore_group_signals
from rlhf_lab.runs.foreign.boundary import ForeignFailure, shown
from rlhf_lab.types.samples import Example

# The sample's example, its text, and whether it wrote the end token. Picklable for a time limit.
Judge = Callable[[Example, str, bool], Any]

# Rewards become tensors of float32.
LARGEST = (2 - 2**-23) * 2.0**127


def serve(descriptor: int, parent: int) -> None:
    """Main of the child: samples in, scores or errors out, until the parent ends."""
    ignore_group_signals()
    die_with(parent)
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        try:
            judge = connection.recv()
        except EOFError:
            raise
        except Exception as error:
            connection.send(("failed", as_text(error)))
            return
        connection.send(("ready", None))
        while True:
            try:
                connection.send(("done", finite(judge(*connection.recv()))))
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise
            except ForeignFailure as failure:
                connection.send(("foreign", (str(failure), as_text(failure)[1])))
            except Exception as error:
                connection.send(("failed", as_text(error)))


def as_text(error: BaseException) -> tuple[str, str]:
    """An error and its traceback as text: the error itself may not be picklable."""
    return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))


def finite(value: Any) -> float:
    """The value that a function returned as a float; raises unless it is a finite float32."""
    if inspect.iscoroutine(value):
        value.close()  # nobody awaits it, of which Python would warn
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"it returned {shown(value)}, which is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"it returned {number}, which is no finite number")
    if abs(number) > LARGEST:
        raise ValueError(f"it returned {number}, which is too large for a number of 32 bits")
    return number
