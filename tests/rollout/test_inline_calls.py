"""A call in the trainer's own process that hangs is reported, and a signal ends it."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from rlhf_lab.rollout.executor import InlineExecutor
from rlhf_lab.runs.signals import listening
from rlhf_lab.types.errors import StopRequested

SECONDS = 120.0


class HangingWorker:
    """Waits for an event, within a call of a name. Stands for a generator and its reward."""

    calling = "my_module.my_reward"

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def opening(self) -> tuple[str, ...]:
        return ()

    def run(self, feed: Any, chunk: Any, pulse: Any) -> Any:
        assert self._event.wait(SECONDS), "it was not reported"
        return Done()


class Done:
    seconds = 0.0


def test_a_call_without_progress_is_reported_once_with_its_name_and_place() -> None:
    reported, texts = threading.Event(), list[str]()

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    executor = InlineExecutor(lambda: HangingWorker(reported), 0.01, report)  # type: ignore[arg-type, return-value]
    executor.start()
    assert isinstance(executor.submit(None, None).result(), Done)  # type: ignore[arg-type]
    (text,) = texts
    assert text.startswith("my_module.my_reward has made no progress for mode.hang_seconds=0.01")
    assert "test_inline_calls.py" in text


def test_a_signal_ends_a_call_and_the_chunk_has_not_been_written() -> None:
    executor = InlineExecutor(
        lambda: HangingWorker(threading.Event()),  # type: ignore[arg-type, return-value]
        0.01,
        lambda _: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM),
    )
    executor.start()
    with listening() as stop, stop.deferred():
        first = executor.submit(None, None)  # type: ignore[arg-type]
        # What is submitted afterwards does not begin.
        second = executor.submit(None, None)  # type: ignore[arg-type]
        assert stop.is_requested
    for future in (first, second):
        with pytest.raises(StopRequested):
            future.result()
