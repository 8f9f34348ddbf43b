"""A process that is killed, or whose machine vanishes, ends the others with its name."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from rlhf_lab.training.engines import distributed
from rlhf_lab.training.engines.distributed import Liveness
from tests.support.liveness_worker import lose
from tests.support.two_ranks import start_two


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("liveness")
@pytest.mark.parametrize(
    ("loser", "number"),
    [
        pytest.param(1, signal.SIGKILL, id="killed", marks=pytest.mark.slow),
        pytest.param(1, signal.SIGSTOP, id="rank 1 vanished", marks=pytest.mark.slow),
        pytest.param(0, signal.SIGSTOP, id="rank 0 vanished"),
    ],
)
def test_the_other_process_ends_and_names_the_lost_one(
    tmp_path: Path, loser: int, number: signal.Signals
) -> None:
    """A process that is stopped keeps its connections, as a machine without power does."""
    started, logs = start_two(tmp_path, lose, loser, number)
    started[1 - loser].join(300)
    code = started[1 - loser].exitcode
    for process in started:
        process.kill()
        process.join()
    errors = logs[1 - loser].errors.read_text()
    assert code == 1, errors
    assert f"process {loser} of 2 (" in errors
    assert "has given no sign of life for" in errors


class Store:
    """A store in memory, shared by two processes' counts."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]


class NeverAnswers(Store):
    def check(self, keys: list[str]) -> Any:
        threading.Event().wait()


def test_processes_that_count_are_not_lost() -> None:
    store, messages = Store(), list[str]()
    both = [Liveness(store, rank, 2, messages.append, beat=0.02, silence=60.0) for rank in (0, 1)]
    for one in both:
        one.start()
    assert both[0].silent(60.0) == "" == both[1].silent(60.0)
    for one in both:
        one.stop()
        # A thread that is in the store while Python ends would abort the process.
        assert not any(thread.is_alive() for thread in one._threads)
    assert messages == []


def test_a_store_that_never_answers_counts_as_a_lost_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "STOP_SECONDS", 0.1)
    messages: SimpleQueue[str] = SimpleQueue()
    one = Liveness(NeverAnswers(), 1, 2, messages.put, beat=0.02, silence=0.1)
    one.start()
    assert "process 0 of 2 (unknown host)" in messages.get(timeout=60)
    one.stop()
