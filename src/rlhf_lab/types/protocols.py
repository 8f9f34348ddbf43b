"""What each part of a run offers to the others: algorithms, rewards, generators, engines, trackers.

Protocols with one method are optional: a part that has the method gets what it serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlhf_lab.types.data import (
    Batch,
    Chunk,
    Credit,
    GeneratorReport,
    LossOutput,
    Metrics,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    UpdateResult,
    Verdict,
    Weights,
)
from rlhf_lab.types.samples import Example, Group, Split

if TYPE_CHECKING:
    from torch import Tensor


class WeightFeed(Protocol):
    """Says which weights write token `step` (from 0) of a chunk; asked once per step, in order."""

    def at(self, step: int) -> Weights: ...


class Algorithm(Protocol):
    """Two pure methods. Never sees a model, a device, a clock or a random number."""

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
    """An algorithm that is another one after every round, by the KL that it sees."""

    @property
    def kl_coef(self) -> float: ...

    def adapted(self, kl: float, num_samples: int) -> Algorithm:
        """The algorithm of the next round. kl: nats per sequence to the reference."""
        ...

    def with_kl_coef(self, kl_coef: float) -> Algorithm:
        """The algorithm that a checkpoint was saved with."""
        ...


class Correction(Protocol):
    """What is done about samples of another policy than the one that trains. Pure, like algorithms.

    corrects: the objectives that it makes sense for. anchors_at_start: ratios are taken against the
    policy at the round's start, which costs one forward pass a sample. warning: told once a run.

    `weight` turns log-ratios of the policy to the behaviour (of the policy at the round's start,
    where the loss's own ratio begins there) into factors of the credit, BT, none negative.
    `step` is a factor of the learning rate, from the whole-sequence log-ratios of an update's rows.
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


class Task(Protocol):
    """Prompts, reference answers and the task's own rule of what is good.

    `tokenizer()` is the tokenizer that the task brings for models trained from nothing, else None.
    `judge` scores one answer (`finished` says whether the end token was written); a task without
    a rule of its own (`has_rule` is False) is judged by a reward model instead.
    """

    @property
    def name(self) -> str: ...

    @property
    def max_prompt_tokens(self) -> int: ...

    @property
    def max_response_tokens(self) -> int: ...

    @property
    def has_rule(self) -> bool: ...

    def examples(self, split: Split) -> Sequence[Example]: ...

    def tokenizer(self) -> Any | None: ...

    def judge(self, example: Example, text: str, finished: bool) -> float: ...


@runtime_checkable
class Shortening(Protocol):
    """A task that can leave out some of a prompt that is too long."""

    def shorter(self, example: Example, excess: int) -> Example | None:
        """The next shorter form, for a prompt `excess` tokens too long; None if there is none."""
        ...


@runtime_checkable
class Verifiable(Protocol):
    """A task that can tell right from wrong: where `is_verifiable`, a text that `judge` gives 1 or
    more is right, and any other is wrong."""

    @property
    def is_verifiable(self) -> bool: ...


@runtime_checkable
class Answering(Protocol):
    """A task whose texts hold an answer that samples of a prompt can vote on."""

    def answer(self, text: str) -> str | None:
        """The answer in a text; None if it has none."""
        ...

    def is_same_answer(self, one: str, other: str) -> bool:
        """Whether two answers are one and the same vote."""
        ...


class Reward(Protocol):
    """Scores groups: one float per sample, in order. A judge is one too.

    An empty tuple says that a group could not be scored (a judge that fails, a verifier that takes
    too long). Such a group is dropped and counted: a failure is never a reward.
    """

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]: ...


@runtime_checkable
class Stepwise(Protocol):
    """A reward that also says what each step of a sample earned."""

    def scored(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with their rewards (those of `score`) and step rewards."""
        ...


def scored_groups(reward: Reward, groups: Sequence[Group]) -> list[Group]:
    """The groups with all that a reward says of them."""
    if isinstance(reward, Stepwise):
        return reward.scored(groups)
    rows = reward.score(groups)
    return [group.scored(row) for group, row in zip(groups, rows, strict=True)]


@runtime_checkable
class Metered(Protocol):
    """A reward that costs something, or that can fail."""

    def drain(self) -> Mapping[str, int]:
        """Counts since the last call, under names for the ledger, such as judge_calls."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A judge that compares texts instead of scoring each by itself."""

    def compare(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        """One verdict per sample against the only sample of the prompt's reference group, in
        order; an empty tuple for a group that could not be judged."""
        ...


class Generator(Protocol):
    """A function of its arguments: the same weights and chunk give the same groups."""

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]: ...


@runtime_checkable
class Reporting(Protocol):
    """A generator with metrics of its own, or notes for the user."""

    def report(self) -> GeneratorReport:
        """Metrics and notes since the last call."""
        ...


@runtime_checkable
class Closing(Protocol):
    """Something that outlives its last use unless it is closed: a process, a server."""

    def close(self) -> None: ...


class Engine(Protocol):
    """The only owner of trainable state.

    `logp` reads given weights without touching the policy; `values` asks the value model; `state`
    and `restore` carry optimizer, value model and a moved reference through a checkpoint.
    `peak_memory` is in bytes, of the process that took most.
    """

    def reference_logp(self, batch: Batch) -> Tensor: ...

    def logp(self, batch: Batch, weights: Weights) -> Tensor: ...

    def values(self, batch: Batch) -> Tensor: ...

    def update(
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> UpdateResult: ...

    def move_reference(self, decay: float) -> None: ...

    def weights(self, version: int) -> Weights: ...

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None: ...

    def peak_memory(self) -> Mapping[str, int]: ...


class Tracker(Protocol):
    """Where metrics go. JSONL is the record, the others are mirrors."""

    def log(self, metrics: Metrics, step: int) -> None: ...

    def close(self) -> None: ...
