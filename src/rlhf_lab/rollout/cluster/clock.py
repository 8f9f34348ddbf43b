"""The trainer's lane in virtual time: what it waits, trains and hands over."""

from __future__ import annotations

from rlhf_lab.rollout.cluster.model import Cluster
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.types.data import Metrics


class TrainerClock:
    """Moves the clock of a cluster as its trainer does, and sums up the trainer's time."""

    def __init__(self, cluster: Cluster, options: ClusterOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._train = self._sync = self._wait = 0.0

    def advance(self) -> None:
        """Wait until another chunk is finished."""
        start = self._cluster.now
        self._cluster.advance()
        self._wait += self._cluster.now - start

    def publish(self, version: int, tokens: float) -> None:
        """Train on so many virtual tokens, all passes counted, and publish what comes of it. The
        first version was there before."""
        options = self._options
        if self._cluster.newest >= 0:
            train = options.training_seconds(tokens)
            self._train += train
            self._sync += options.sync_seconds
            if options.is_colocated:
                self._cluster.pause(True)
            self._cluster.elapse(train + options.sync_seconds)
            self._cluster.pause(False)
        self._cluster.publish(version)

    def measures(self) -> Metrics:
        """Sums in virtual seconds and virtual tokens so far."""
        generators = self._cluster.generators
        now = self._cluster.now
        busy = sum(generator.busy for generator in generators)
        loading = sum(generator.loading for generator in generators)
        return {
            "virtual_seconds/wall": now,
            "virtual_seconds/train": self._train,
            "virtual_seconds/sync": self._sync,
            "virtual_seconds/wait": self._wait,
            "virtual_seconds/generate": busy,
            "virtual_seconds/load": loading,
            "virtual_seconds/generator_wait": len(generators) * now - busy - loading,
            "virtual_seconds/tool_wait": sum(generator.tool_wait for generator in generators),
            "virtual/decoded_tokens": sum(generator.decoded for generator in generators),
            "virtual/lost_tokens": sum(generator.lost for generator in generators),
            "virtual/failures": sum(generator.failures for generator in generators),
        }
