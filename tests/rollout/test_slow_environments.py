"""Generator processes whose environments are slow: no hang as long as the limits of episodes let
them be, and named with row and turn beyond."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlhf_lab.rollout.background import ProcessExecutor
from rlhf_lab.rollout.generators.episode_options import WhenLate
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.process import FailurePolicy, GeneratorFailure
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk, Rollout
from rlhf_lab.types.samples import Finish
from tests.support.environments import prompt
from tests.support.slow_environments import FOR_EVER, NUM_SAMPLES, worker_of

pytestmark = pytest.mark.usefixtures("liveness")

# Enough for a generator on a busy machine to show signs of life.
HANG_SECONDS = 3.0
WEIGHTS = Weights(0, {"a": torch.ones(2)})


def generated(reset: float, step: float, **options: Any) -> Rollout:
    """A chunk by a generator process that is watched. options: of episodes."""
    reports: list[str] = []
    failures = FailurePolicy(OnFailure.stop, HANG_SECONDS, 0, reports.append)
    make = worker_of(reset, step, **options)
    executor = ProcessExecutor([make], 1, WEIGHTS.state, 2, failures)
    executor.start()
    try:
        return executor.submit(WEIGHTS, Chunk(0, 0, (prompt(),), NUM_SAMPLES)).result()
    finally:
        executor.close()


@pytest.mark.parametrize(
    ("reset", "step", "options"),
    [
        # A call that is longer, and several that are longer together.
        (0.0, 1.5 * HANG_SECONDS, {"steps_at_once": NUM_SAMPLES}),
        pytest.param(HANG_SECONDS / 2, 0.0, {}, marks=pytest.mark.slow),
        # No limit, by which alone a wait is known to end: a sign of life behind each call.
        pytest.param(HANG_SECONDS / 2, 0.0, {"step_seconds": 0.0}, marks=pytest.mark.slow),
        (HANG_SECONDS / 2, 0.0, {"step_seconds": 0.0, "steps_at_once": 2}),
        (0.0, HANG_SECONDS / 2, {"step_seconds": 0.0, "decode_ahead": 4}),
    ],
)
def test_slow_environments_are_no_hang(reset: float, step: float, options: dict[str, Any]) -> None:
    (group,) = generated(reset, step, **options).groups
    ends = [(sample.finish, sample.episode.is_late) for sample in group.samples if sample.episode]
    assert ends == [(Finish.eos, False)] * NUM_SAMPLES


@pytest.mark.parametrize("option", ["step_seconds", "episode_seconds"])
def test_a_step_that_hangs_is_named_or_ends_its_episode(option: str) -> None:
    limit = {option: HANG_SECONDS / 3, "steps_at_once": NUM_SAMPLES}
    complaint = rf"^task=play, row row/0, turn 1: the environment took longer .*{option}=1: raise"
    with pytest.raises(UserError, match=complaint):
        generated(0.0, FOR_EVER, **limit)
    (group,) = generated(0.0, FOR_EVER, when_late=WhenLate.truncate, **limit).groups
    ends = [(sample.finish, sample.episode.is_late) for sample in group.samples if sample.episode]
    assert ends == [(Finish.length, True)] * NUM_SAMPLES


def test_a_call_without_a_limit_that_hangs_is_a_hang() -> None:
    with pytest.raises(GeneratorFailure, match="hung at chunk 0 of round 0"):
        generated(0.0, FOR_EVER, step_seconds=0.0)
