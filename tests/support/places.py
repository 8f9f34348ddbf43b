"""The places where a reward runs: in the run's process, a thread, a time limit's, a generator.

Children import this module."""

from __future__ import annotations

import functools
import json
import multiprocessing.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import tests.support.preloaded  # noqa: F401
from rlhf_lab.rewards.function import FunctionJudge
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rollout.failures import FailurePolicy
from rlhf_lab.rollout.mode_choices import OnFailure
from rlhf_lab.rollout.process import GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.foreign import state
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.support.misbehaving import FINAL


def behave(place: str, names: Sequence[str], report: str) -> None:
    """What becomes of each name at a place, written down as (kind, text) pairs: the error, or the
    score; and, for what undoes its changes, whether they are undone."""
    judge = PLACES[place]()
    before, found = state.now(), {}
    for name in names:
        try:
            kind, text = "score", str(judge(name))
        except BaseException as error:
            kind, text = type(error).__name__, str(error)
        is_undone = name in FINAL or not state.restore_changes(before)
        found[name] = kind, text, is_undone
    Path(report).write_text(json.dumps(found))


def function(seconds: float = 0.0) -> SampleScorer:
    judge = FunctionJudge("tests.support.misbehaving.by_name", {"given": [1]})
    return SampleScorer(judge, seconds, OnError.stop)


def groups(name: str) -> tuple[Group, ...]:
    """One sample with an answer."""
    example = Example("row/7", "a b", " c", {"facts": {"numbers": [1]}})
    return (Group(Prompt(0, (1,), example), (Sample((5,), (0.0,), 0, Finish.eos, name),)),)


def inline(seconds: float = 0.0) -> Callable[[str], float]:
    scorer = function(seconds)
    return lambda name: scorer.score(groups(name))[0][0]


def in_thread() -> Callable[[str], float]:
    judge = inline()
    return lambda name: ThreadPoolExecutor(1).submit(judge, name).result()


class Writer:
    """A generator that writes the uid of its prompt."""

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        feed.at(0)
        return groups(chunk.prompts[0].example.uid)


def writer() -> RolloutWorker:
    return RolloutWorker(Writer(), function(), False)


WEIGHTS = Weights(0, {"a": torch.ones(2)})


def generator() -> GeneratorProcess:
    """A process that is ready to score."""
    shared = SharedWeights(WEIGHTS.state, 1)
    shared.write(WEIGHTS)
    process = GeneratorProcess(writer, shared, 0, FailurePolicy(OnFailure.stop, 60.0, 0, print))
    process.spawn()
    process.wait_ready()
    return process


def scored_by(process: GeneratorProcess, name: str) -> float:
    process._outstanding.clear()
    process.send(WEIGHTS, Chunk(0, 0, (Prompt(0, (1,), Example(name, "", "")),), 1))
    return process.receive().groups[0].rewards[0]


def in_generator() -> Callable[[str], float]:
    process = generator()
    # Before Python waits for its children, of which this one heeds no signal.
    multiprocessing.util.Finalize(None, process.close, exitpriority=100)
    return functools.partial(scored_by, process)


PLACES: dict[str, Callable[[], Callable[[str], float]]] = {
    "inline": inline,
    "thread": in_thread,
    "time limit": lambda: inline(120.0),
    "generator": in_generator,
}
