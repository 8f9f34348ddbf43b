"""vLLM in a child process of the run, on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_lab.rollout.generators.vllm.process import STARTUP_REMEDY, VLLMProcess
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Backend,
    Drawing,
    EngineFailure,
    Request,
    per_token,
    sampling_params,
)
from rlhf_lab.rollout.generators.vllm.weights import WeightFiles
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat, nothing

WAIT_SECONDS = 0.5


class LocalEngine(Backend):
    """A child with an `LLM` in it. It is ready when this is made, but has no weights yet.

    arguments: what the child makes of it.
    """

    num_engines = 1

    def __init__(
        self, child: VLLMProcess, arguments: dict[str, Any], startup_seconds: float
    ) -> None:
        self._child = child
        self._files = WeightFiles()
        self._numbers = itertools.count()
        self._results: list[Any] = []
        self._drawn: dict[int, list[Any]] = {}
        try:
            self._send(arguments, "while it started")
            child.wait_for(
                lambda: child.connection.poll(WAIT_SECONDS),
                "while it started",
                startup_seconds,
                STARTUP_REMEDY,
            )
            self._receive("while it started", lambda: bool(self._results))
            self._results.clear()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def load(self, weights: Weights, name: str) -> None:
        """Give it a version; raises EngineFailure if it then has another one."""
        doing = f"while it loaded version {name}"
        with self._files.written(weights, name) as path:
            self._send(("load", {"path": path, "name": name}), doing)
            self._receive(doing, lambda: bool(self._results))
        if (has := self._results.pop()) != name:
            raise self._child.failure(doing, f"reports version {has}")

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int:
        rows = [(request.tokens, sampling_params(request, drawing)) for request in requests]
        number = next(self._numbers)
        self._send(("draw", (number, rows)), f"at {len(requests)} samples")
        return number

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        self._receive("at samples", lambda: not self._drawn.keys().isdisjoint(numbers), look)
        return {
            number: [
                Answer(tuple(tokens), tuple(logps), reason == "stop", per_token(spans))
                for tokens, logps, reason, spans in self._drawn.pop(number)
            ]
            for number in numbers
            if number in self._drawn
        }

    def close(self) -> None:
        self._child.close()

    def _send(self, message: Any, doing: str) -> None:
        try:
            self._child.connection.send(message)
        except OSError as error:
            raise self._child.failure(doing) from error

    def _receive(
        self, doing: str, is_there: Callable[[], bool], look: Callable[[], None] = nothing
    ) -> None:
        """Keep what the child sends until it is there, while signs of life are passed on."""
        while not is_there():
            try:
                kind, content = self._child.connection.recv()
            except (EOFError, OSError) as error:
                raise self._child.failure(doing) from error
            beat()
            if kind == "refused":
                raise UserError(content)
            if kind == "failed":
                raise self._child.failure(doing, "failed") from EngineFailure(content)
            if kind == "done":
                self._results.append(content)
            elif kind == "drawn":
                number, rows = content
                self._drawn[number] = rows
            else:
                look()
