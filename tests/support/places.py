"""The places from which a reward is called: the run's thread, another, a generator; with a limit.

Children import this module."""

from __future__ import annotations

import functools
import json
import multiprocessing.util
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import tests.support.preloaded  # noqa: F401
from rlhf_lab.rewards.function import FunctionScoring
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.process import FailurePolicy, GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.child import GROUP_SIGNALS
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample


def behave(place: str, names: Sequence[str], report: str) -> None:
    """What becomes of each name at a place, written down as (kind, text) pairs: the error, or the
    score; and whether this process is as it was."""
    judge = PLACES[place]()
    before, found = state(), {}
    for name in names:
        try:
            kind, text = "score", str(judge(name))
        except BaseException as error:
            kind, text = type(error).__name__, str(error)
        found[name] = kind, text, state() == before
    Path(report).write_text(json.dumps(found))


def state() -> tuple[Any, ...]:
    """What a function might have changed in the process of a run."""
    return (
        os.getcwd(),
        dict(os.environ),
        [os.fstat(number).st_ino for number in range(3)],
        [signal.getsignal(number) for number in GROUP_SIGNALS],
        signal.getitimer(signal.ITIMER_REAL),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.empty(0).device,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )


def function(seconds: float = 0.0) -> SampleScorer:
    scoring = FunctionScoring("tests.support.misbehaving.by_name", {"given": [1]})
    return SampleScorer(scoring, seconds, OnError.stop, workers=1)


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


class Writer(Generator):
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
