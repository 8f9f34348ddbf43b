"""An environment whose first call waits for a second one, which comes only where calls and what is
written go on side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.samples import Example
from tests.support.environments import Play


class Together:
    """Answers `1`, and ends on its second action. calls: of all environments."""

    def __init__(self, calls: list[int], lock: threading.Lock, second: threading.Event) -> None:
        self.calls, self.lock, self.second = calls, lock, second

    def reset(self, example: Example, seed: int) -> str:
        self.number = 0
        return ""

    def step(self, action: str, finished: bool) -> Turn:
        self.number += 1
        with self.lock:
            self.calls.append(1)
            is_first = len(self.calls) == 1
        if is_first:
            self.second.wait()
        else:
            self.second.set()
        return Turn("1", is_done=self.number == 2)


@contextmanager
def together(max_turn_tokens: int) -> Iterator[Play]:
    """A task of such environments. Its first call is let go at the end."""
    calls: list[int] = []
    lock, second = threading.Lock(), threading.Event()
    yield Play(lambda: Together(calls, lock, second), 3, max_turn_tokens, 1)
    second.set()
