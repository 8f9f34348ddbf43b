"""Chunks that are written together, and chunks that several versions wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlhf_lab.rollout.background import ThreadWorker
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.executor import InlineExecutor
from rlhf_lab.rollout.feeds import LatestWeights, are_together
from rlhf_lab.rollout.generator_main import following
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.worker import RolloutWorker, written_segments
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.rollout.test_vllm_generator import Lengths
from tests.support.pipelines import chunk_pipeline

PROMPT = Prompt(0, (5,), Example("row/0", "", ""))


def sample(*versions: int) -> Sample:
    size = len(versions)
    begun = Sample((), (), 0, Finish.unfinished, "")
    return begun.continued((7,) * size, (-0.5,) * size, versions, Finish.eos, "")


def chunk(number: int) -> Chunk:
    return Chunk(0, number, (PROMPT,), 1)


@pytest.mark.parametrize(
    ("source", "other", "expected"),
    [(3, 3, True), (3, 4, False), (True, True, True), (False, False, False), (1, True, False)],
)
def test_chunks_are_together_if_the_same_weights_write_them(
    source: int | bool, other: int | bool, expected: bool
) -> None:
    assert are_together(source, other) is expected


def test_only_the_chunks_before_the_next_version_follow() -> None:
    waiting = [(3, chunk(1)), (3, chunk(2)), (4, chunk(3)), (3, chunk(4))]
    assert [one.index for one in following(3, waiting)] == [1, 2]
    assert list(following(3, [None])) == []


def test_segments_begin_at_the_earliest_token_of_each_version() -> None:
    groups = [Group(PROMPT, (sample(1, 1, 2), sample(1, 3))), Group(PROMPT, (sample(2, 2, 3, 3),))]
    assert written_segments(groups) == ((0, 1), (0, 2), (1, 3))


class Patient(Generator):
    """A generator that notes what it is told, and in which order; version 6 comes at once."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def prefetch(self, feed: WeightFeed, chunk: Chunk) -> None:
        self.heard.append(f"prefetched {chunk.index}")

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        self.heard.append(f"generated {chunk.index}")
        return (Group(PROMPT, (sample(5, feed.at(0).version),)),)


def worker(generator: Patient) -> RolloutWorker:
    reward: Reward = Lengths()
    return RolloutWorker(generator, reward, is_model=False)


@pytest.mark.parametrize("lag", [0, 1])
def test_a_trainer_that_generates_prefetches_all_chunks_that_a_version_writes(lag: int) -> None:
    generator = Patient()
    mode = Mode(name="lagged", max_staleness=lag)
    pipe = chunk_pipeline(
        InlineExecutor(lambda: worker(generator)), StalenessBudget(lag, 3, 2), chunk, 3, mode
    )
    with pipe:
        pipe.take(Weights(0, {}))
    chunks = range(3 + 3 * lag)
    assert generator.heard == [
        *(f"prefetched {number}" for number in chunks[1:]),
        *(f"generated {number}" for number in chunks),
    ]


def test_a_thread_prefetches_the_chunks_that_it_holds_already() -> None:
    generator = Patient()
    thread = ThreadWorker(lambda: worker(generator), 0, torch.device("cpu"))
    thread.spawn()
    weights = Weights(5, {})
    for number, feed in enumerate((weights, weights, Weights(6, {}))):
        thread.send(feed, chunk(number))
    rollouts = [thread.receive() for _ in range(3)]
    assert generator.heard == ["prefetched 1", *(f"generated {number}" for number in range(3))]
    assert [rollout.segments for rollout in rollouts] == [((0, 5),), ((0, 5),), ((0, 6),)]


def test_the_rollout_of_a_following_feed_is_as_old_as_its_oldest_token() -> None:
    feed = LatestWeights(lambda: Weights(6, {}), per_token=True)
    rollout = worker(Patient()).run(feed, replace(chunk(0), round=7))
    assert rollout.segments == ((0, 5), (1, 6))
    assert rollout.version == 5
