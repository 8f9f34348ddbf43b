"""From a config to its virtual cluster, the only part of a run that needs simpy."""

from __future__ import annotations

from collections.abc import Callable

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import chunks_per_round, sample_tokens
from rlhf_lab.rollout.cluster.executor import ChunkWriter, Setting, VirtualExecutor
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.types.randomness import stable_hash


def virtual_executor(config: Config, make_worker: Callable[[], ChunkWriter]) -> VirtualExecutor:
    """The executor of mode=virtual, which also decides in which order rounds take chunks."""
    mode: Mode = config.mode
    setting = Setting(
        chunks_per_round(config),
        sample_tokens(config),
        config.run.passes,
        mode.deadline,
        stable_hash(config.seed, "cluster"),
    )
    return VirtualExecutor(make_worker, config.cluster, setting)
