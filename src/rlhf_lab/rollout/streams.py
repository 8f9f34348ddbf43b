"""A CUDA stream for each generator in a thread: on one stream it and the trainer take turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rlhf_lab.rollout.feeds import is_following
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout


@dataclass
class OrderedFeed:
    """A feed whose weights are read on this stream once the trainer's work on them is done.

    Weights in host memory are complete when they are handed over; those on a GPU are complete once
    its default stream, the trainer's, has come to this point.
    """

    feed: WeightFeed
    stream: Any
    _last: Weights | None = None

    @property
    def per_token(self) -> bool:
        """Whether newer weights may come while a chunk is written."""
        return is_following(self.feed)

    def at(self, step: int) -> Weights:
        weights = self.feed.at(step)
        if weights is not self._last:
            for tensor in weights.state.values():
                if tensor.device.type == "cuda":
                    self.stream.wait_stream(torch.cuda.default_stream(tensor.device))
                    # Its memory is not given to others before this stream has read it.
                    tensor.record_stream(self.stream)
            self._last = weights
        return weights


class OwnStream:
    """Runs a worker on a stream of its own; on a CPU it just runs it.

    Samples leave a worker in host memory, for which it has waited: nobody needs to wait for its
    stream. Made in the thread that built the worker, so that its models are there.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def run(self, worker: RolloutWorker, feed: WeightFeed, chunk: Chunk) -> Rollout:
        """Run the worker on this CUDA stream."""
        if self._stream is None:
            return worker.run(feed, chunk)
        with torch.cuda.stream(self._stream):
            return worker.run(OrderedFeed(feed, self._stream), chunk)
