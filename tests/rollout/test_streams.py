"""Generators in threads have a CUDA stream each, and read weights on it in the right order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.background import OrderedFeed, OwnStream
from rlhf_lab.rollout.feeds import LatestWeights, is_following
from rlhf_lab.types.data import Weights


class Stream:
    """A stream that notes what it waits for."""

    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def wait_stream(self, other: Any) -> None:
        self._log.append(("wait", other))


class OnGPU:
    """A tensor on a GPU."""

    device = torch.device("cuda", 0)

    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def record_stream(self, stream: Any) -> None:
        self._log.append("kept")


def test_weights_on_a_gpu_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: f"trainer of {device}")
    first, second = (Weights(n, {"a": OnGPU(log)}) for n in (0, 1))  # type: ignore[dict-item]
    feed = OrderedFeed(SimpleNamespace(at=lambda step: [first, second][step // 2]), Stream(log))
    assert [feed.at(step).version for step in range(4)] == [0, 0, 1, 1]
    assert log == [("wait", "trainer of cuda:0"), "kept"] * 2


def test_weights_in_host_memory_are_complete() -> None:
    log: list[Any] = []
    weights = Weights(3, {"a": torch.zeros(1)})
    assert OrderedFeed(weights, Stream(log)).at(5) is weights
    assert not log


@pytest.mark.parametrize("per_token", [False, True])
def test_an_ordered_feed_is_followed_as_the_one_that_it_orders(per_token: bool) -> None:
    latest = LatestWeights(lambda: Weights(0, {}), per_token)
    assert is_following(OrderedFeed(latest, Stream([]))) is per_token
    assert not is_following(OrderedFeed(Weights(0, {}), Stream([])))


def test_a_worker_on_a_gpu_runs_on_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []

    @contextlib.contextmanager
    def stream(entered: Any) -> Iterator[None]:
        log.append("enter")
        yield
        log.append("leave")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: Stream(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "that of its models")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    worker: Any = SimpleNamespace(run=lambda feed, chunk: (feed, chunk))
    chunk: Any = "chunk"
    found: Any = OwnStream(torch.device("cuda", 1)).run(worker, Weights(0, {}), chunk)
    assert isinstance(found[0], OrderedFeed) and found[1] == "chunk"
    assert log == [("wait", "that of its models"), "enter", "leave"]


def test_on_a_cpu_nothing_changes() -> None:
    worker: Any = SimpleNamespace(run=lambda feed, chunk: (feed, chunk))
    chunk: Any = "chunk"
    weights = Weights(0, {})
    found: Any = OwnStream(torch.device("cpu")).run(worker, weights, chunk)
    assert found == (weights, "chunk")
