"""The process of a reward's worker: it scores samples until its parent ends.

It starts in a moment, since it imports only what its scoring does; torch takes seconds. What user
code changes in it (working folder, signal handlers, torch's settings) reaches no run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import math
import os
import pickle
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from rlhf_lab.runs.child import ignore_group_signals
from rlhf_lab.runs.foreign import described, ending, shown
from rlhf_lab.runs.output import protect_output
from rlhf_lab.runs.processes import die_with
from rlhf_lab.types.samples import Example

# Rewards become tensors of float32.
LARGEST = (2 - 2**-23) * 2.0**127
# Seconds within which outcomes are sent together.
MOMENT = 0.001


@dataclass(frozen=True)
class Item:
    """A sample as it is scored. finished: whether its end token was written. rendered: the text of
    a chat's prompt as the policy read it."""

    example: Example
    text: str
    finished: bool
    tokens: tuple[int, ...] = ()
    rendered: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a sample has no score. traceback: of the code that was called. is_late: it took too long.
    error: what was raised, where it is in this process."""

    text: str
    traceback: str = ""
    is_late: bool = False
    error: BaseException | None = None


# None: the function leaves the sample to others.
Outcome = float | None | Failure
# The sample's example, its text, and whether it wrote the end token.
Judge = Callable[[Example, str, bool], Any]


class Scoring(ABC):
    """What scores samples in a worker; it is sent there by pickle."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What is called, in messages."""

    def ready(self) -> Any:
        """Called once in the worker; what it returns is sent back."""
        return None

    @property
    def is_whole(self) -> bool:
        """Whether all samples of a chunk are passed in one call."""
        return False

    @abstractmethod
    def outcomes(self, items: Sequence[Item]) -> Iterator[tuple[int, Outcome]]:
        """The outcome of each item, with its place, as it becomes known."""


@dataclass(frozen=True)
class EachSample(Scoring):
    """A judge that is called once for every sample, such as the rule of a task."""

    judge: Judge

    def outcomes(self, items: Sequence[Item]) -> Iterator[tuple[int, Outcome]]:
        def score(item: Item) -> float:
            return finite(self.judge(item.example, item.text, item.finished))

        for place, item in enumerate(items):
            yield place, outcome_of(score, item, self.name)

    @property
    def name(self) -> str:
        return str(getattr(self.judge, "__qualname__", None) or type(self.judge).__name__)


def outcome_of(score: Callable[[Item], float | None], item: Item, name: str) -> Outcome:
    """The score, or how the call ended. name: of what was called, in messages."""
    pid = os.getpid()
    try:
        return score(item)
    except BaseException as error:
        return failure(item, name, error)
    finally:
        if os.getpid() != pid:
            os._exit(1)  # a fork of the worker must not answer in its place


def failure(item: Item, name: str, error: BaseException) -> Failure:
    """The failure of one sample: its uid, what was called, and what that did."""
    text = f"{item.example.uid}: {name} {ending(error)} on the answer {item.text!r}"
    return Failure(text, as_text(error), error=error)


def late(item: Item, seconds: float) -> Failure:
    """The failure of a sample that took too long."""
    return Failure(
        f"{item.example.uid}: no score within time_limit_s={seconds} for the answer {item.text!r}: "
        "raise the limit, or pass on_error=drop beside it",
        is_late=True,
    )


def as_text(error: BaseException) -> str:
    """A traceback as text: the error itself may not be picklable, or fail when it is shown."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:
        return described(error)


def serve(descriptor: int, parent: int) -> None:
    """Main of the worker: samples in, outcomes out, until the parent ends."""
    ignore_group_signals()
    die_with(parent)
    faulthandler.enable()
    protect_output()
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        scoring = loaded(connection)
        while scoring:
            answer(connection, scoring, *connection.recv())


def loaded(connection: Connection) -> Scoring | None:
    """What the parent sends to score with; None if it cannot be loaded, which the parent gets."""
    data = connection.recv_bytes()
    pid = os.getpid()
    try:
        scoring: Scoring = pickle.loads(data)
        facts = scoring.ready()
    except BaseException as error:
        connection.send(("failed", (ending(error), as_text(error))))
        return None
    finally:
        if os.getpid() != pid:
            os._exit(1)
    connection.send(("ready", (scoring.is_whole, facts)))
    return scoring


def answer(connection: Connection, scoring: Scoring, items: Sequence[Item], is_exact: bool) -> None:
    """Send the outcomes of the items with the seconds and CPU seconds that they took: each as soon
    as it is known if is_exact, those of a moment together otherwise, which costs a fifth."""
    wall, cpu = time.perf_counter(), time.process_time()
    known: list[tuple[int, Outcome]] = []
    for number, (place, outcome) in enumerate(scoring.outcomes(items), start=1):
        if isinstance(outcome, Failure):
            outcome = Failure(outcome.text, outcome.traceback, outcome.is_late)
        known.append((place, outcome))
        took = time.perf_counter() - wall
        if number == len(items) or ((is_exact or took > MOMENT) and not scoring.is_whole):
            connection.send((known, (took, time.process_time() - cpu)))
            wall, cpu, known = time.perf_counter(), time.process_time(), []


def finite(value: Any) -> float:
    """The value that a function returned as a float; raises unless it is a finite float32."""
    if inspect.iscoroutine(value):
        value.close()  # Python would warn that it is not awaited
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"it returned {shown(value)}, which is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"it returned {number}, which is no finite number")
    if abs(number) > LARGEST:
        raise ValueError(f"it returned {number}, which is too large for a number of 32 bits")
    return number
