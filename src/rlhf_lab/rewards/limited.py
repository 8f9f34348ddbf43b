"""Judging one sample after another by a function that may raise, hang, or end its process.

With a time limit the function runs in a child process, which is killed when time is up and started
again for the next sample. It is a plain subprocess: generators are daemons of multiprocessing,
which may have no children of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from rlhf_lab.rewards.limited_child import Judge, finite
from rlhf_lab.runs.foreign.boundary import ForeignFailure, Unrestored
from rlhf_lab.types.samples import Example, Finish, Group

START_SECONDS = 300.0
CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rlhf_lab.rewards.limited_child import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class OnError(StrEnum):
    """What follows a sample that cannot be scored: the run stops, or its group has no score."""

    stop = "stop"
    drop = "drop"


class TimeUp(RuntimeError):
    """The function did not come back within its time limit."""


class ChildTraceback(Exception):
    """The text of a traceback of the child, as the cause of the error that it told."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class SampleScorer:
    """Scores sample by sample. What the judge raises stops the run; with on_error=drop a group of
    which one sample fails has no score instead, and failures are counted."""

    def __init__(self, judge: Judge, seconds: float, on_error: OnError) -> None:
        self._judge = ChildJudge(judge, seconds) if seconds else judge
        self._on_error = on_error
        self._counts: Counter[str] = Counter()

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """One float per sample, in order."""
        return [self._of_group(group) for group in groups]

    def drain(self) -> Mapping[str, int]:
        """Failures since the last call; none are counted where the first one stops the run."""
        counts, self._counts = self._counts, Counter()
        if self._on_error is OnError.stop:
            return {}
        return {name: counts[name] for name in ("reward_timeouts", "reward_errors")}

    def _of_group(self, group: Group) -> tuple[float, ...]:
        example = group.prompt.example
        scores = []
        for sample in group.samples:
            try:
                score = self._judge(example, sample.text, sample.finish is Finish.eos)
                scores.append(score if self._on_error is OnError.stop else finite(score))
            except Exception as error:
                if self._on_error is OnError.stop or isinstance(error, Unrestored):
                    raise
                name = "reward_timeouts" if isinstance(error, TimeUp) else "reward_errors"
                self._counts[name] += 1
                return ()
        return tuple(scores)


@dataclass(frozen=True)
class Child:
    """A running child and our end of the pipe to it."""

    process: subprocess.Popen[bytes]
    connection: Connection

    def end(self) -> None:
        """Kill it, unless it has ended, and bury it."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


class ChildJudge:
    """A judge in a child process, which is started at the first call, and again after a loss."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self._function = judge
        self._seconds = seconds
        self._child: Child | None = None
        self._bury: Callable[[], int | None] = lambda: None

    def __call__(self, example: Example, text: str, finished: bool) -> float:
        """What the judge says; raises what it raised, or that it took too long or died."""
        child = self._running()
        try:
            child.connection.send((example, text, finished))
            if not child.connection.poll(self._seconds):
                self._bury()
                raise TimeUp(
                    f"{example.uid}: no score within time_limit_s={self._seconds} for the answer "
                    f"{text!r}: raise the limit, or pass on_error=drop beside it"
                )
            told, content = child.connection.recv()
        except (EOFError, OSError) as error:
            self._bury()
            raise ForeignFailure(
                f"{example.uid}: the process of the time limit of {name_of(self._function)} died ("
                f"{ending(child.process.returncode)}) on the answer {text!r}"
            ) from error
        if told == "done":
            return float(content)
        message, trace = content
        if told == "foreign":
            raise ForeignFailure(message) from ChildTraceback(trace)
        raise RuntimeError(f"{example.uid}: {message}") from ChildTraceback(trace)

    def _running(self) -> Child:
        # One that ended while nothing was asked of it is nobody's failure.
        if self._child is None or self._child.process.poll() is not None:
            self._bury()
            self._child = started(self._function)
            # Also when nobody refers to this object any more, and when Python ends.
            self._bury = weakref.finalize(self, self._child.end)
        return self._child


def name_of(judge: Judge) -> str:
    """A judge as messages name it."""
    path = getattr(judge, "path", None) or getattr(judge, "__qualname__", None)
    return str(path or type(judge).__name__)


def ending(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def started(judge: Judge) -> Child:
    """A child that has loaded the judge. What keeps it from that is raised, never counted."""
    ours, theirs = Pipe()
    arguments = [json.dumps(sys.path), str(theirs.fileno()), str(os.getpid())]
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    child = Child(process, ours)
    try:
        ours.send(judge)
        told, content = ours.recv() if ours.poll(START_SECONDS) else ("failed", ("no answer", ""))
    except BaseException as error:
        child.end()
        raise RuntimeError(f"the process of the time limit did not start ({error})") from error
    if told == "failed":
        child.end()
        raise RuntimeError(
            f"the process of the time limit did not start ({content[0]})"
        ) from ChildTraceback(content[1])
    return child
