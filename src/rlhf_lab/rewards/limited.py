"""Scores sample after sample by a function that may raise, hang, or end its process.

With a time limit the function runs in a child process, which is killed when time is up and started
again for the next sample. It is a plain subprocess: generators are daemons of multiprocessing,
which may have no such children.
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter

from rlhf_lab.rewards.limited_child import Judge, finite
from rlhf_lab.runs.child import PIPE, Child, RemoteTraceback, exit_text
from rlhf_lab.runs.foreign.boundary import ForeignFailure, Unrestored
from rlhf_lab.types.samples import Example, Finish, Group, Sample

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


class SampleScorer:
    """Scores sample by sample. What the judge raises stops the run; with on_error=drop a group of
    which one sample fails has no score instead, and failures are counted. text_of: the text of a
    sample that the judge gets."""

    def __init__(
        self,
        judge: Judge,
        seconds: float,
        on_error: OnError,
        text_of: Callable[[Sample], str] = attrgetter("text"),
    ) -> None:
        self._judge = ChildJudge(judge, seconds) if seconds else judge
        self._on_error = on_error
        self._text_of = text_of
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
                score = self._judge(example, self._text_of(sample), sample.finish is Finish.eos)
                scores.append(score if self._on_error is OnError.stop else finite(score))
            except Exception as error:
                if self._on_error is OnError.stop or isinstance(error, Unrestored):
                    raise
                name = "reward_timeouts" if isinstance(error, TimeUp) else "reward_errors"
                self._counts[name] += 1
                return ()
        return tuple(scores)


class ChildJudge:
    """A judge in a child process, which is started at the first call, and again after a loss."""

    def __init__(self, judge: Judge, seconds: float) -> None:
        self._function = judge
        self._seconds = seconds
        self._child: Child | None = None
        self._close_child: Callable[[], int | None] = lambda: None

    def __call__(self, example: Example, text: str, finished: bool) -> float:
        """The judge's score; raises what the judge raised, TimeUp, or that the child died."""
        child = self._running()
        try:
            child.connection.send((example, text, finished))
            if not child.connection.poll(self._seconds):
                self._close_child()
                raise TimeUp(
                    f"{example.uid}: no score within time_limit_s={self._seconds} for the answer "
                    f"{text!r}: raise the limit, or pass on_error=drop beside it"
                )
            kind, content = child.connection.recv()
        except (EOFError, OSError) as error:
            self._close_child()
            raise ForeignFailure(
                f"{example.uid}: the process of the time limit of {name_of(self._function)} died ("
                f"{exit_text(child.exit_code)}) on the answer {text!r}"
            ) from error
        if kind == "done":
            return float(content)
        message, traceback = content
        if kind == "foreign":
            raise ForeignFailure(message) from RemoteTraceback(traceback)
        raise RuntimeError(f"{example.uid}: {message}") from RemoteTraceback(traceback)

    def _running(self) -> Child:
        # No sample is to blame for a child that ended between two calls.
        if self._child is None or self._child.exit_code is not None:
            self._close_child()
            self._child = started(self._function)
            # Also when nobody refers to this object any more, and when Python ends.
            self._close_child = weakref.finalize(self, self._child.close)
        return self._child


def name_of(judge: Judge) -> str:
    """The name of a judge in messages."""
    path = getattr(judge, "path", None) or getattr(judge, "__qualname__", None)
    return str(path or type(judge).__name__)


def started(judge: Judge) -> Child:
    """A child that has loaded the judge. An error there is raised, never counted."""
    words = [sys.executable, "-c", CHILD, json.dumps(sys.path), PIPE, str(os.getpid())]
    child = Child(words, is_session=False)
    try:
        child.connection.send(judge)
        has_answer = child.connection.poll(START_SECONDS)
        kind, content = child.connection.recv() if has_answer else ("failed", ("no answer", ""))
    except BaseException as error:
        child.close()
        raise RuntimeError(f"the process of the time limit did not start ({error})") from error
    if kind == "failed":
        child.close()
        raise RuntimeError(
            f"the process of the time limit did not start ({content[0]})"
        ) from RemoteTraceback(content[1])
    return child
