"""Calls of environments: what is done where one takes longer than it may."""

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


@dataclass(eq=False)
class ThreadCall:
    """A call. limit: seconds that it may take, infinite for any. result: what it returned, Raised,
    or LATE. seconds: that it took, 0 where it has not returned."""

    run: Callable[[], Any]
    limit: float
    result: Any = LATE
    seconds: float = 0.0
    is_ended: bool = False
    is_awaited: bool = False


class CallThreads:
    """Makes calls in the order in which they are begun, so many at the same time.

    A thread cannot be stopped from outside. One whose call takes too long is left to itself, and
    another takes its place; so a call that hangs costs a thread and no more.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._num_working = 0
        self._queue: deque[ThreadCall] = deque()
        self._started: dict[ThreadCall, float] = {}
        self._num_awaited = 0
        self._num_ended = 0
        self._changed = threading.Condition()

    def begin(self, calls: Sequence[ThreadCall]) -> None:
        """Begin calls, without waiting for them."""
        with self._changed:
            self._queue.extend(calls)
            for _ in range(min(len(calls), self._threads - self._num_working)):
                self._num_working += 1
                on_a_thread(self._work)

    def ended(self, calls: Sequence[ThreadCall]) -> list[bool]:
        """Whether each has ended by now: it has returned, raised, or is late."""
        with self._changed:
            self._give_up_late_ones()
            return [call.is_ended for call in calls]

    def wait(self, calls: Sequence[ThreadCall], for_one: bool = False) -> None:
        """Wait until all of these have ended, or one of them has.

        The process is reported as alive while all calls that may be waited for have a limit. Calls
        without a limit may hang, so that only their end is reported."""
        with self._changed:
            missing = [call for call in calls if not call.is_ended]
            self._num_awaited = len(missing)
            if for_one:
                self._num_awaited = int(bool(calls) and len(missing) == len(calls))
            for call in missing:
                call.is_awaited = True
            num_ended = self._num_ended
            while self._num_awaited > 0:
                self._changed.wait(self._until_late())
                self._give_up_late_ones()
                # The heartbeat is of the thread that waits, not of those that call.
                if self._have_limits or self._num_ended > num_ended:
                    beat()
                num_ended = self._num_ended
            for call in missing:
                call.is_awaited = False
        if calls:
            beat()

    def drop(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        with self._changed:
            self._queue.clear()
            begun = list(self._started)
        self.wait(begun)

    @property
    def _have_limits(self) -> bool:
        return all(math.isfinite(call.limit) for call in (*self._started, *self._queue))

    def _until_late(self) -> float:
        """Seconds until a call may be late, or a heartbeat is due."""
        ends = (start + call.limit for call, start in self._started.items())
        return max(0.0, min(BEAT_SECONDS, min(ends, default=math.inf) - time.monotonic()))

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        for call in [one for one, start in self._started.items() if now - start >= one.limit]:
            self._end(call)
            on_a_thread(self._work)

    def _end(self, call: ThreadCall) -> None:
        del self._started[call]
        call.is_ended = True
        self._num_ended += 1
        self._num_awaited -= call.is_awaited

    def _work(self) -> None:
        """Make calls until none is left, or this thread was given up."""
        while (call := self._taken()) is not None:
            result: Any
            try:
                result = call.run()
            except BaseException as error:
                result = Raised(error)
            if not self._is_kept(call, result):
                return

    def _taken(self) -> ThreadCall | None:
        with self._changed:
            if not self._queue:
                self._num_working -= 1
                return None
            call = self._queue.popleft()
            self._started[call] = time.monotonic()
            return call

    def _is_kept(self, call: ThreadCall, result: Any) -> bool:
        """Keep a result that is in time. Returns whether the call was not given up."""
        with self._changed:
            if call not in self._started:
                return False
            call.seconds = time.monotonic() - self._started[call]
            # The clock decides, not whether the thread that waits was woken before.
            if call.seconds < call.limit:
                call.result = result
            self._end(call)
            if self._num_awaited <= 0:
                self._changed.notify()
            return True


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


class BegunCall(NamedTuple):
    """A call that is made. on_thread: None where the thread that waits makes it."""

    call: Call
    limit: Limit
    on_thread: ThreadCall | None


class EnvironmentCalls:
    """Makes calls of environments, of which each environment has one at a time."""

    def __init__(self, options: EpisodeOptions | None = None) -> None:
        self.options = options or EpisodeOptions()
        self._threads = CallThreads(self.options.steps_at_once)

    def one(self, call: Call) -> Any:
        """What a call returns; see `all`."""
        return self.all([call])[0]

    def all(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns, in their order; see `end`."""
        return self.end(self.begin(calls))

    def begin(self, calls: Sequence[Call]) -> list[BegunCall]:
        """Begin calls, without waiting for them. At most episodes.steps_at_once of all that were
        begun are made at the same time, in their order; the seconds of each count from then. Where
        nothing bounds their time, nor goes on beside them, `end` makes them one by one."""
        limits = [self._limit(call) for call in calls]
        if self._need_no_thread(len(calls)):
            return [BegunCall(*one, None) for one in zip(calls, limits, strict=True)]
        on_threads = [
            ThreadCall(call.run, limit.seconds) for call, limit in zip(calls, limits, strict=True)
        ]
        self._threads.begin(on_threads)
        return [BegunCall(*one) for one in zip(calls, limits, on_threads, strict=True)]

    def _need_no_thread(self, num_calls: int) -> bool:
        options = self.options
        is_one_by_one = options.steps_at_once == 1 or num_calls == 1
        return is_one_by_one and not options.is_limited and not options.decode_ahead

    def end(self, begun: Sequence[BegunCall]) -> list[Any]:
        """Wait for calls. Returns what each returned, in their order. Raises what the first of them
        raised, and UserError where one takes longer than episodes.step_seconds, or all of an
        episode longer than episodes.episode_seconds; with episodes.when_late=truncate it returns
        None, unless it is needed."""
        on_threads = [one.on_thread for one in begun if one.on_thread]
        self._threads.wait(on_threads)
        for one in begun:
            if one.on_thread:
                one.call.spent.seconds += one.on_thread.seconds
        return [self._result(one) for one in begun]

    def ended(self, begun: Sequence[BegunCall], for_one: bool) -> list[bool]:
        """Whether each call has ended by now. for_one: wait until one has."""
        on_threads = [one.on_thread for one in begun if one.on_thread]
        if for_one:
            self._threads.wait(on_threads, for_one)
        return self._threads.ended(on_threads)

    def drop(self) -> None:
        """Make none of the calls that still wait for a thread, and wait for those under way, to
        their limit: nobody takes what they return."""
        self._threads.drop()

    def _limit(self, call: Call) -> Limit:
        """What a call may take: by itself, or what is left to its episode. A repeated one may take
        what the whole may: its episode cannot end before a turn that was played."""
        spent = 0.0 if call.is_repeated else call.spent.seconds
        return min(
            Limit(self.options.step_seconds or math.inf, "step_seconds"),
            Limit((self.options.episode_seconds or math.inf) - spent, "episode_seconds"),
        )

    def _result(self, begun: BegunCall) -> Any:
        call, limit = begun.call, begun.limit
        if begun.on_thread is None:
            return run_and_beat(call)
        result = begun.on_thread.result
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
