"""Pipelines of hand-made chunks."""

from __future__ import annotations

from collections.abc import Callable

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_queue import ChunkQueue
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.executor import Executor
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.types.rollouts import Chunk


def chunk_pipeline(
    executor: Executor,
    budget: StalenessBudget,
    chunk: Callable[[int], Chunk],
    chunks_per_round: int,
    mode: Mode,
    report: Callable[[str], None] = lambda _: None,
) -> Pipeline:
    """A pipeline whose chunks belong to one round each. chunk(number): the n-th one."""
    runner = ChunkRunner(executor, chunk, mode, ahead=2 * chunks_per_round, report=report)
    return Pipeline(runner, ChunkQueue(runner, budget, chunks_per_round, mode))
