"""vLLM in a child process of the run, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhf_lab.rollout.generators.vllm.process import STARTUP_REMEDY, VLLMProcess
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Drawing,
    EngineFailure,
    Request,
    sampling_params,
)
from rlhf_lab.rollout.generators.vllm.weights import WeightFiles
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat

WAIT_SECONDS = 0.5


class LocalEngine:
    """A child with an `LLM` in it. It is ready when this is made, but has no weights yet.

    arguments: what the child makes of it.
    """

    num_engines = 1

    def __init__(
        self, child: VLLMProcess, arguments: dict[str, Any], startup_seconds: float
    ) -> None:
        self._child = child
        self._files = WeightFiles()
        try:
            self._send(arguments, "while it started")
            child.wait_for(
                lambda: child.connection.poll(WAIT_SECONDS),
                "while it started",
                startup_seconds,
                STARTUP_REMEDY,
            )
            self._receive("while it started")
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
            has = self._receive(doing)
        if has != name:
            raise self._child.failure(doing, f"reports version {has}")

    def draw(self, requests: Sequence[Request], drawing: Drawing) -> list[Answer]:
        doing = f"at {len(requests)} samples"
        rows = [(request.tokens, sampling_params(request, drawing)) for request in requests]
        self._send(("draw", rows), doing)
        return [
            Answer(tuple(tokens), tuple(logps), reason == "stop", tuple(versions))
            for tokens, logps, reason, versions in self._receive(doing)
        ]

    def close(self) -> None:
        self._child.close()

    def _send(self, message: Any, doing: str) -> None:
        try:
            self._child.connection.send(message)
        except OSError as error:
            raise self._child.failure(doing) from error

    def _receive(self, doing: str) -> Any:
        """The answer, while signs of life are passed on."""
        while True:
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
                return content
