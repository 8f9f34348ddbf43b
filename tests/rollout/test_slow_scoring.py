"""A reward model that scores for longer than mode.hang_seconds, pass after pass."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.rewards import model as scoring
from rlhf_lab.rewards.model import ModelScorer, as_tokens
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.rollout import shared
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.process import FailurePolicy, GeneratorProcess
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.types.data import Weights
from tests.support.forked import Obedient, chunk, obedient
from tests.training.test_reward_model import saved

PASS_SECONDS, PASSES, HANG_SECONDS = 1.25, 4, 2.0


@pytest.mark.parametrize("beats", [True, False])
def test_scoring_is_a_hang_only_without_heartbeats(
    beats: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed, reports = [0.0], [], list[str]()
    monkeypatch.setattr(shared, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    nothing_shared: Any = None
    care = FailurePolicy(OnFailure.stop, HANG_SECONDS, 0, reports.append)
    watched: Any = GeneratorProcess(obedient, nothing_shared, 0, care)
    watched._process = SimpleNamespace(pid=1, kill=lambda: killed.append(clock[0]))
    watched._stacks = SimpleNamespace(current=lambda _: "a stack")
    work = chunk(0)
    watched._outstanding.append((0, work))

    def slow_pass(_: Any, rows: Any, *__: Any) -> torch.Tensor:
        # The watcher's thread looks far more often than a pass ends.
        for _ in range(5):
            clock[0] += PASS_SECONDS / 5
            watched.watch()
        return torch.zeros(len(rows))

    monkeypatch.setattr(scoring, "row_scores", slow_pass)
    if not beats:
        monkeypatch.setattr(scoring, "beat", lambda: None)
    model, _, _ = load_reward_model(str(saved(tmp_path, "Llama", 1)))
    reward = ModelScorer(model, 0.0, ModelReward(micro_rows=1), as_tokens, threads=1)

    class Several(Obedient):
        def generate(self, feed: Any, chunk: Any) -> Any:
            (group,) = super().generate(feed, chunk)
            return (group,) * PASSES

    def pulse() -> None:
        watched._progress.counter.add_(1)

    worker = RolloutWorker(Several(), reward, is_model=True, clock=time.perf_counter)
    worker.run(Weights(0, {}), work, pulse)
    assert clock[0] == pytest.approx(PASSES * PASS_SECONDS) and clock[0] > HANG_SECONDS
    assert bool(killed) is bool(reports) is not beats
    if not beats:
        assert HANG_SECONDS <= killed[0] < clock[0]
