"""The interfaces between the parts of a run: algorithms, generators, engines, trackers.

Those of rewards are in reward_protocols.py. Protocols marked `runtime_checkable` are optional: a
part that implements one is used accordingly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rlhf_lab.types.data import (
    Batch,
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


class Algorithm(Protocol):
    """Two pure functions of tensors; it sees no model, device, clock or random number.

    credit: an advantage (or preference) per token, and which rows to train on. loss: a scalar from
    the policy's log-probs; a sum weighted by `batch.weight_BT`, so that the losses of micro-batches
    add up. objective, reduction, needs: what the run must prepare for it.
    """

    @property
    def reduction(self) -> Reduction: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def needs(self) -> Needs: ...

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit: ...

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput: ...


@runtime_checkable
class Adaptive(Protocol):
    """An algorithm whose KL coefficient changes after every round, by the KL that was measured."""

    @property
    def kl_coef(self) -> float: ...

    def adapted(self, kl: float, num_samples: int) -> Algorithm:
        """The algorithm for the next round. kl: nats per sequence to the reference."""
        ...

    def with_kl_coef(self, kl_coef: float) -> Algorithm:
        """The algorithm with a coefficient from a checkpoint."""
        ...


@runtime_checkable
class Scheduled(Protocol):
    """An algorithm with a number that the round decides."""

    def at_round(self, round_: int, num_rounds: int) -> Algorithm:
        """The algorithm of a round, counted from 0."""
        ...


class Correction(Protocol):
    """A correction for samples that another policy wrote than the one that trains on them. Pure.

    corrects: objectives that it applies to. anchors_at_start: ratios of the loss are taken against
    the policy at the round's start, at the cost of one more forward pass per sample. warning: shown
    once a run.

    weight(log_ratio_BT, batch): factors of the credit, BT, none negative. The log-ratio is policy
    (or, if anchored, policy at the round's start) over behaviour. step(log_ratio_B): a factor of
    the learning rate, from the whole-sequence log-ratios of an update's rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def corrects(self) -> frozenset[Objective]: ...

    @property
    def anchors_at_start(self) -> bool: ...

    @property
    def warning(self) -> str: ...

    def weight(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor: ...

    def step(self, log_ratio_B: Tensor) -> float: ...


@runtime_checkable
class Fitting(Protocol):
    """A correction in which all tokens of an update decide the weight of each. It must be anchored:
    its log-ratios are known before the update, whose micro-batches are then weighed alike."""

    def fitted(self, log_ratio_BT: Tensor, batch: Batch) -> Correction:
        """The correction of one update. batch: all of its rows."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """A correction that needs what the writer of each token gives it in the trainer's model, to
    tell the generator's mismatch from staleness."""

    def with_writers(self, batch: Batch, writer_logp_BT: Tensor) -> Batch:
        """The batch with these log-probs, wherever the loss compares with them."""
        ...

    def terms(self, log_ratio_BT: Tensor, batch: Batch) -> Mapping[str, Tensor]:
        """Measures of each token, BT, by the names of `off_policy.SUMS`. log_ratio_BT: as in
        `weight`."""
        ...


@runtime_checkable
class Interpolating(Protocol):
    """A correction with a proximal policy of its own, by the age of tokens (`Batch.lag_BT`)."""

    def proximal(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Its log-probs, BT. log_ratio_BT: policy over behaviour."""
        ...


@runtime_checkable
class EntropyScaled(Protocol):
    """A correction that needs the entropies of the distributions that tokens were drawn from, in
    the trainer's model at the weights that wrote them."""

    def with_entropies(self, batch: Batch, entropy_BT: Tensor) -> Batch:
        """The batch with these, in nats."""
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
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> UpdateResult: ...

    def move_reference(self, decay: float) -> None: ...

    def weights(self, version: int) -> Weights: ...

    def whole(self, weights: Weights) -> Weights: ...

    def state(self) -> dict[str, Tensor]: ...

    def sharded(self) -> ShardWriter | None: ...

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None: ...

    def peak_memory(self) -> Mapping[str, int]: ...


class Tracker(Protocol):
    """A destination of metrics. The JSONL file is the record; the others mirror it."""

    def log(self, metrics: Metrics, step: int) -> None: ...

    def close(self) -> None: ...
