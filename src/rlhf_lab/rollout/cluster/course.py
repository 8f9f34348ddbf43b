"""The course of a virtual cluster: all that was done to it, from which it can be made again.

A simulation is a function of its calls and of the lengths that were drawn. So a checkpoint holds
those, and a resumed run goes through them once more, a second for some hundred thousand chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.rollout.cluster.job import Job

PUBLISH, SUBMIT, ADVANCE = "publish", "submit", "advance"


class Course:
    """Calls in their order, and the lengths of each writing in its order."""

    def __init__(self) -> None:
        self._calls: list[list[Any]] = []
        self._lengths: list[list[int]] = []
        self._known: deque[list[int]] = deque()

    def publish(self, version: int, trained_tokens: float) -> None:
        self._calls.append([PUBLISH, version, trained_tokens])

    def submit(self, job: Job) -> None:
        self._calls.append([SUBMIT, job.number, job.rows, job.prompt_tokens])

    def advance(self) -> None:
        if self._calls and self._calls[-1][0] == ADVANCE:
            self._calls[-1][1] += 1
        else:
            self._calls.append([ADVANCE, 1])

    def wrote(self, lengths: Sequence[int]) -> None:
        self._lengths.append(list(lengths))

    def known(self) -> list[int] | None:
        """The lengths of the next writing, while the course is gone through again."""
        return self._known.popleft() if self._known else None

    def state(self) -> dict[str, Any]:
        """The course as JSON-able data, for `restore`."""
        return {"calls": self._calls, "lengths": self._lengths}

    def restore(self, state: Mapping[str, Any]) -> list[list[Any]]:
        """Take over a course whose lengths `known` gives. Returns its calls."""
        self._calls = [list(call) for call in state["calls"]]
        self._lengths = [list(lengths) for lengths in state["lengths"]]
        self._known = deque(self._lengths)
        return self._calls
