"""Calls of environments: what is done where one takes longer than it may."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlhf_lab.rollout.generators.call_threads import LATE, CallThreads, Raised, ThreadCall
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions, WhenLate
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat


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
