"""Event log of a virtual cluster; replaying it restores the simulation.

A simulation is a function of its calls, and of lengths and waits that were drawn. So a checkpoint
holds those, and a resumed run goes through them once more, a second for some hundred thousand
chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rlhf_lab.rollout.cluster.job import Drawn, Job

PUBLISH, SUBMIT, ADVANCE = "publish", "submit", "advance"


class Course:
    """Calls in their order, and what each writing gave, in its order."""

    def __init__(self) -> None:
        self._calls: list[list[Any]] = []
        self._drawn: list[Drawn] = []
        self._known: deque[Drawn] = deque()

    def publish(self, version: int, trained_tokens: float) -> None:
        self._calls.append([PUBLISH, version, trained_tokens])

    def submit(self, job: Job) -> None:
        self._calls.append([SUBMIT, job.number, job.rows, job.prompt_tokens])

    def advance(self) -> None:
        if self._calls and self._calls[-1][0] == ADVANCE:
            self._calls[-1][1] += 1
        else:
            self._calls.append([ADVANCE, 1])

    def wrote(self, drawn: Drawn) -> None:
        self._drawn.append(drawn)

    def known(self) -> Drawn | None:
        """What the next writing gave, while the course is gone through again."""
        return self._known.popleft() if self._known else None

    def state(self) -> dict[str, Any]:
        """The course as JSON-able data, for `restore`."""
        return {
            "calls": self._calls,
            "lengths": [list(drawn.lengths) for drawn in self._drawn],
            "waits": [list(map(list, drawn.waits)) for drawn in self._drawn],
        }

    def restore(self, state: Mapping[str, Any]) -> list[list[Any]]:
        """Take over a course, whose writings `known` gives. Returns its calls. Checkpoints from
        before there were waits have none."""
        self._calls = [list(call) for call in state["calls"]]
        waits = state.get("waits") or [()] * len(state["lengths"])
        self._drawn = list(map(Drawn, state["lengths"], waits))
        self._known = deque(self._drawn)
        return self._calls
