"""Calls of environments: several at the same time, each with a limit of real seconds."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlhf_lab.rollout.generators.episode_options import EpisodeOptions, WhenLate
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat

BEAT_SECONDS = 0.5


@dataclass
class Spent:
    """Real seconds that the calls of one episode have taken."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Call:
    """A call of an environment. place: task, row and turn, for errors. is_needed: without what it
    returns there is no episode. is_repeated: made again to continue an episode, in which it was in
    time; it is needed too. spent: of its episode."""

    place: str
    run: Callable[[], Any]
    is_needed: bool = False
    is_repeated: bool = False
    spent: Spent = field(default_factory=Spent)


class Limit(NamedTuple):
    """Real seconds that a call may take, and the option that bounds them."""

    seconds: float
    option: str


@dataclass(frozen=True)
class EnvironmentCalls:
    """Makes calls of environments, of which each environment has one at a time.

    A thread cannot be stopped from outside. One whose call takes too long is left to itself, and
    another takes its place; so a hanging environment costs a thread and no more.
    """

    options: EpisodeOptions = field(default_factory=EpisodeOptions)

    def one(self, call: Call) -> Any:
        """What a call returns; see `all`."""
        return self.all([call])[0]

    def all(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns, in their order. Raises what the first of them raises, and
        UserError where one takes longer than episodes.step_seconds, or all of an episode longer
        than episodes.episode_seconds; with episodes.when_late=truncate it returns None, unless it
        is needed.

        The process is reported as alive while all calls have a limit. Calls without a limit may
        hang, so that only their end is reported."""
        at_once = self.options.steps_at_once
        if not self.options.is_limited and (at_once == 1 or len(calls) == 1):
            return [run_and_beat(call) for call in calls]
        limits = [self._limit(call) for call in calls]
        results = Batch(calls, [limit.seconds for limit in limits]).run(min(at_once, len(calls)))
        return [
            self._kept(call, limit, result)
            for call, limit, result in zip(calls, limits, results, strict=True)
        ]

    def _limit(self, call: Call) -> Limit:
        """What a call may take: by itself, or what is left to its episode. A repeated one may take
        what the whole may: its episode cannot end before a turn that was played."""
        spent = 0.0 if call.is_repeated else call.spent.seconds
        return min(
            Limit(self.options.step_seconds or math.inf, "step_seconds"),
            Limit((self.options.episode_seconds or math.inf) - spent, "episode_seconds"),
        )

    def _kept(self, call: Call, limit: Limit, result: Any) -> Any:
        if isinstance(result, Raised):
            raise result.error
        if result is not LATE:
            return result
        is_needed = call.is_needed or call.is_repeated
        if is_needed or self.options.when_late is WhenLate.stop:
            # An episode without its beginning, or without turns that it had, cannot end there.
            cut = "" if is_needed else ", or pass episodes.when_late=truncate to end the episode"
            raise UserError(
                f"{call.place}: the environment took longer than "
                f"episodes.{limit.option}={getattr(self.options, limit.option):g}: raise it, or "
                f"mend the environment{cut}"
            )
        return None


def run_and_beat(call: Call) -> Any:
    """What a call returns, with a heartbeat behind it."""
    result = call.run()
    beat()
    return result


@dataclass(frozen=True)
class Raised:
    """An exception of a call."""

    error: BaseException


LATE = object()


class Worker(threading.Thread):
    """A thread that works on what it is given, and is idle in between: to start one takes longer
    than most calls. A daemon, since one that hangs must not keep the process from ending."""

    def __init__(self) -> None:
        super().__init__(name="environment", daemon=True)
        self.given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.given.get()()
            IDLE.append(self)


IDLE: deque[Worker] = deque()
# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=IDLE.clear)


def on_a_thread(work: Callable[[], None]) -> None:
    """Begin work on an idle thread, or on a new one. It must not raise."""
    try:
        worker = IDLE.pop()
    except IndexError:
        worker = Worker()
        worker.start()
    worker.given.put(work)


class Batch:
    """Calls that are made by threads. limits: seconds that each may take, infinite for any."""

    def __init__(self, calls: Sequence[Call], limits: Sequence[float]) -> None:
        self._calls = calls
        self._limits = limits
        self._results: list[Any] = [LATE] * len(calls)
        self._next = 0
        self._num_ended = 0
        self._started: dict[int, float] = {}
        self._changed = threading.Condition()

    def run(self, threads: int) -> list[Any]:
        """Make all calls. Returns what they returned, Raised, or LATE."""
        num_ended = 0
        with self._changed:
            for _ in range(threads):
                on_a_thread(self._work)
            while not self._is_done:
                self._changed.wait(self._until_late())
                self._give_up_late_ones()
                # The heartbeat is of the thread that waits, not of those that call.
                if self._have_limits or self._num_ended > num_ended:
                    beat()
                num_ended = self._num_ended
        return self._results

    @property
    def _is_done(self) -> bool:
        return self._next == len(self._calls) and not self._started

    @property
    def _have_limits(self) -> bool:
        return all(map(math.isfinite, self._limits))

    def _until_late(self) -> float:
        """Seconds until a call may be late, or a heartbeat is due."""
        ends = (start + self._limits[index] for index, start in self._started.items())
        return max(0.0, min(BEAT_SECONDS, min(ends, default=math.inf) - time.monotonic()))

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        for index in [i for i, start in self._started.items() if now - start >= self._limits[i]]:
            del self._started[index]
            self._num_ended += 1
            on_a_thread(self._work)

    def _work(self) -> None:
        """Make calls until none is left, or this thread was given up."""
        while (index := self._taken()) is not None:
            result: Any
            try:
                result = self._calls[index].run()
            except BaseException as error:
                result = Raised(error)
            if not self._is_kept(index, result):
                return

    def _taken(self) -> int | None:
        with self._changed:
            index = self._next
            if index == len(self._calls):
                return None
            self._next += 1
            self._started[index] = time.monotonic()
            return index

    def _is_kept(self, index: int, result: Any) -> bool:
        """Keep a result that is in time. Returns whether the call was not given up."""
        with self._changed:
            if index not in self._started:
                return False
            seconds = time.monotonic() - self._started.pop(index)
            self._calls[index].spent.seconds += seconds
            # The clock decides, not whether the thread that waits was woken before.
            if seconds < self._limits[index]:
                self._results[index] = result
            self._num_ended += 1
            if self._is_done:
                self._changed.notify()
            return True
