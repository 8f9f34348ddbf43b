"""The interfaces between the parts of a run: algorithms, generators, engines, trackers.

Those of rewards are in reward.py. Protocols marked `runtime_checkable` are optional: a
part that implements one is used accordingly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rlhf_lab.types.data import (
    Batch,
    CorrectionNeeds,
    Credit,
    LossOutput,
    Metrics,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    UpdateResult,
    Weights,
)
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Group

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from torch import Tensor


class WeightFeed(Protocol):
    """The weights that write token `step` (from 0) of a chunk; read once per step, in order."""

    def at(self, step: int) -> Weights: ...


class Loss(Protocol):
    """A pure function of tensors, which an engine minimises: a scalar from the policy's log-probs.

    It is a sum weighted by `batch.weight_BT`, so that the losses of micro-batches add up.
    objective, reduction, needs: what the run must prepare for it.
    """

    @property
    def reduction(self) -> Reduction: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def needs(self) -> Needs: ...

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput: ...


class Algorithm(Loss, Protocol):
    """Two pure functions of tensors, credit and loss; it sees no model, device, clock or random
    number. `algos.options.AlgorithmOptions` has defaults for all members but these two,
    `objective` and `reduction`."""

    @property
    def name(self) -> str: ...

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """An advantage (or preference) per token, and which rows to train on."""
        ...

    def at_round(self, round_: int, num_rounds: int) -> Algorithm:
        """The algorithm of a round, counted from 0."""
        ...

    def state(self) -> Mapping[str, float]:
        """Options that change from round to round, which are logged and kept in checkpoints."""
        ...

    def with_state(self, state: Mapping[str, float]) -> Algorithm:
        """The algorithm with the options of a checkpoint."""
        ...

    def adapted(self, metrics: Metrics, num_samples: int) -> Algorithm:
        """The algorithm for the next round, by the metrics of this one and its samples."""
        ...


class Correction(Protocol):
    """A correction for samples that another policy wrote than the one that trains on them. Pure.

    corrects: objectives that it applies to. anchors_at_start: ratios of the loss are taken against
    the policy at the round's start, at the cost of one more forward pass per sample. needs: what
    else it reads, and which of the methods below `step` are called. warning: shown once a run.

    `algos.corrections.common.CorrectionOptions` has defaults for all members but `corrects`.
    """

    @property
    def name(self) -> str: ...

    @property
    def corrects(self) -> frozenset[Objective]: ...

    @property
    def anchors_at_start(self) -> bool: ...

    @property
    def needs(self) -> CorrectionNeeds: ...

    @property
    def warning(self) -> str: ...

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Factors of the credit, BT, none negative. log_ratio_BT: policy (or, if anchored, policy
        at the round's start) over behaviour."""
        ...

    def step(self, log_ratio_B: Tensor) -> float:
        """A factor of the learning rate. log_ratio_B: of an update's responses."""
        ...

    def fitted(self, log_ratio_BT: Tensor, batch: Batch) -> Correction:
        """The correction of one update. batch: all of its rows, before they are split into
        micro-batches, which are then weighed alike."""
        ...

    def proximal(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Log-probs, BT, that the loss's ratios are against. log_ratio_BT: as in `weight`."""
        ...

    def terms(self, log_ratio_BT: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Measures of each token, BT, by the names of `off_policy.SUMS`. log_ratio_BT: as in
        `weight`."""
        ...


class Generator(ABC):
    """Generates samples. Pure: the same weights and chunk give the same groups."""

    @abstractmethod
    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """The groups of a chunk. `feed.at` is read before each token, or at least once."""

    def generate_all(self, weights: Weights, chunks: Sequence[Chunk]) -> list[Group]:
        """The groups of all chunks in order. Distributed generation overrides it: it draws chunks
        in several processes, each as it would alone."""
        return [group for chunk in chunks for group in self.generate(weights, chunk)]

    def prefetch(self, feed: WeightFeed, chunk: Chunk) -> None:  # noqa: B027 (optional)
        """Take note of a chunk that `generate` will be called with later, in order: a generator
        that draws several at once may begin it."""

    def report(self) -> GeneratorReport:
        """Metrics, and notes for the user, since the last call."""
        return GeneratorReport()

    def close(self) -> None:  # noqa: B027 (optional)
        """End the processes that it started."""


# Tensors that every process has whole, and digests of the files of shards, by their names, once
# all are written.
Shards = tuple[Mapping[str, "Tensor"], "Future[dict[str, str]]"]


class ShardWriter(Protocol):
    """The state of an engine whose tensors are sharded over processes.

    write_shards: every process begins to write its shards into the folder, beside training; None if
    there is one that does not see the folder, and `state` must be used. state: whole.
    """

    def write_shards(self, folder: Path) -> Shards | None: ...

    def state(self) -> Mapping[str, Tensor]: ...


class Engine(Protocol):
    """Owns everything that is trained. Log-probs and values are BT, of the response tokens.

    logp, entropy: of the tokens, and in nats of the distributions that they were drawn from, under
    given weights, without changing the policy. values: by the value model.
    ratio_gradients: of each response, see `Batch.log_ratio_gradient_B`. weights: an
    immutable copy of the policy. whole: a version of a checkpoint with its weights merged, before
    `restore`. state, restore: optimizer, value model and moved reference of a
    checkpoint. sharded: what writes that state by shards, None where one process has it whole.
    peak_memory: bytes, of the process that took most.
    """

    def reference_logp(self, batch: Batch) -> Tensor: ...

    def logp(self, batch: Batch, weights: Weights) -> Tensor: ...

    def entropy(self, batch: Batch, weights: Weights) -> Tensor: ...

    def values(self, batch: Batch) -> Tensor: ...

    def ratio_gradients(self, batch: Batch) -> Tensor: ...

    def update(
        self, batch: Batch, algo: Loss, correction: Correction, learning_rate: float
    ) -> UpdateResult: ...

    def move_reference(self, decay: float) -> None: ...

    def weights(self, version: int) -> Weights: ...

    def whole(self, weights: Weights) -> Weights: ...

    def state(self) -> dict[str, Tensor]: ...

    def sharded(self) -> ShardWriter | None: ...

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None: ...

    def peak_memory(self) -> Mapping[str, int]: ...
