"""The nouns and protocols of the lab. Everything may import this module; torch is only for its
types, so that what reads runs starts without it.

Errors and samples are defined in `errors` and `samples`, and can be imported from here too.

Tensor names end in their shape:

    P prompts (groups)   G samples of one group   B rows = P * G
    S prompt tokens, left-padded   T response tokens, right-padded   V vocabulary

A sample written at weight version w and trained on in round v is v - w rounds old (its lag).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

from rlhf_lab.errors import StopRequested as StopRequested
from rlhf_lab.errors import UserError as UserError
from rlhf_lab.samples import UNBEGUN as UNBEGUN
from rlhf_lab.samples import Example as Example
from rlhf_lab.samples import Finish as Finish
from rlhf_lab.samples import Group as Group
from rlhf_lab.samples import Prompt as Prompt
from rlhf_lab.samples import Sample as Sample
from rlhf_lab.samples import Split as Split
from rlhf_lab.samples import Steps as Steps

Clock = Callable[[], float]
Metrics = dict[str, Any]


class Reduction(StrEnum):
    """How token terms become one number.

    Weights sum to one per update, but for per_limit: every token counts 1 / (rows * response
    limit), so that neither a row's length nor the update's changes it (Dr. GRPO, arXiv:2503.20783).
    """

    sequence_mean = "sequence_mean"
    token_mean = "token_mean"
    per_limit = "per_limit"


class Objective(StrEnum):
    """What a loss makes of the policy's log-probs; it decides which corrections make sense.

    token_ratio, sequence_ratio: policy over proximal policy, per token or of many at once.
    likelihood: the plain log-prob, weighted by credit. comparison: samples of a prompt against each
    other, with no ratio to whoever wrote them.
    """

    token_ratio = "token_ratio"
    sequence_ratio = "sequence_ratio"
    likelihood = "likelihood"
    comparison = "comparison"


class ValueModel(StrEnum):
    """Where values come from: nowhere, a network of its own, or a head on the policy's trunk."""

    none = "none"
    own = "own"
    shared = "shared"


@dataclass(frozen=True)
class Needs:
    """What an algorithm asks of a run besides samples and rewards.

    group_size: least samples per prompt. greedy: the last sample of each group is drawn greedily.
    oversample: groups generated per group trained on; those with unequal rewards are preferred.
    reference_every: rounds after which the reference moves (0: never), to
    reference_decay * reference + (1 - reference_decay) * policy.
    """

    group_size: int = 1
    greedy: bool = False
    oversample: float = 1.0
    values: ValueModel = ValueModel.none
    reference_every: int = 0
    reference_decay: float = 0.0


@dataclass(frozen=True)
class Weights:
    """One immutable version of the policy: number and tensors travel as one object."""

    version: int
    state: Mapping[str, Tensor]

    def at(self, step: int) -> Weights:
        """Whatever the step: one version is the simplest feed of weights."""
        return self


class WeightFeed(Protocol):
    """Says which weights write token `step` (from 0) of a chunk; asked once per step, in order."""

    def at(self, step: int) -> Weights: ...


@dataclass(frozen=True)
class Chunk:
    """The unit of generation: a fixed list of prompts of one round, the same in every mode.

    greedy: the last sample of each group takes the likeliest token at every step. stop_at: response
    tokens at which to stop for now (0: the response limit). begun: samples of an earlier stop, in
    the order of their prompts; those that are unfinished are continued.
    """

    round: int
    index: int
    prompts: tuple[Prompt, ...]
    group_size: int
    greedy: bool = False
    stop_at: int = 0
    begun: tuple[Sample, ...] = ()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples as they are before it is drawn from, group by group."""
        return self.begun or (UNBEGUN,) * (len(self.prompts) * self.group_size)

    def stop(self, limit: int) -> int:
        """Response tokens at which to stop now, where `limit` is the response limit."""
        return min(self.stop_at or limit, limit)

    def grouped(self, samples: Sequence[Sample]) -> tuple[Group, ...]:
        """Samples of all prompts, in their order, by prompt."""
        size = self.group_size
        return tuple(
            Group(prompt, tuple(samples[place * size : (place + 1) * size]))
            for place, prompt in enumerate(self.prompts)
        )


@dataclass(frozen=True)
class Span:
    """A stretch of one lane's time, in seconds of the host's monotonic clock.

    worker, version: whose it was, where a rollout was written in segments; None says the rollout's.
    """

    phase: str
    start: float
    end: float
    worker: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class Told:
    """What a generator says of itself: measures for the round's metrics, and notes for the user."""

    measures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rollout:
    """A generated and scored chunk.

    segments: (step, version) pairs: which version wrote the tokens from that step on. spans: when
    its worker did what. worker: number of the generator, or -1 for the trainer itself. told: what
    the generator found out about itself meanwhile.
    """

    chunk: Chunk
    groups: tuple[Group, ...]
    segments: tuple[tuple[int, int], ...]
    tokens: Mapping[str, int]
    spans: tuple[Span, ...] = ()
    worker: int = -1
    told: Told = field(default_factory=Told)

    @property
    def version(self) -> int:
        """The oldest version that wrote in it."""
        return self.segments[0][1]

    @property
    def seconds(self) -> float:
        """Seconds that its worker spent."""
        return sum(span.end - span.start for span in self.spans)

    @property
    def response_tokens(self) -> int:
        """Tokens written, over all samples."""
        return self.tokens["generated_tokens"]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, in the order of their prompts."""
        return tuple(sample for group in self.groups for sample in group.samples)

    @property
    def is_finished(self) -> bool:
        """Whether no sample waits to be continued."""
        return all(sample.finish is not Finish.unfinished for sample in self.samples)


@dataclass(frozen=True)
class Batch:
    """Rows of whole groups, in group order, as tensors on the engine's device.

    proximal_logp_BT: what ratios are taken against, the behaviour's log-probs unless a correction
    says otherwise. value_BT: the value model's word before the round's updates; target_BT: what it
    should have said. step_reward_BT: what each step earned, at its last token, as a part of the
    row's reward. limit_B: longest response that was allowed, in tokens. known_B: whether the
    reference was asked about the row; where it was not, its log-probs are those of the behaviour.
    """

    prompt_BS: Tensor
    prompt_mask_BS: Tensor
    response_BT: Tensor
    mask_BT: Tensor
    behavior_logp_BT: Tensor
    proximal_logp_BT: Tensor
    reference_logp_BT: Tensor
    value_BT: Tensor
    credit_BT: Tensor
    target_BT: Tensor
    step_reward_BT: Tensor
    weight_BT: Tensor
    group_B: Tensor
    version_B: Tensor
    limit_B: Tensor
    known_B: Tensor

    def __len__(self) -> int:
        return int(self.response_BT.shape[0])

    def rows(self, index_B: Tensor) -> Batch:
        """The rows selected by an index or boolean tensor, in that order."""
        return Batch(**{name: tensor[index_B] for name, tensor in vars(self).items()})


@dataclass(frozen=True)
class Credit:
    """What an algorithm thinks of each row: a value per token, and whether to train on it.

    target_BT: what the value model should say; None without one.
    """

    value_BT: Tensor
    keep_B: Tensor
    target_BT: Tensor | None = None


@dataclass(frozen=True)
class PolicyOutput:
    """What a forward pass tells a loss: log-probs of the response tokens at the temperature, and
    the value of the state before each of them where the algorithm needs values."""

    logp_BT: Tensor
    entropy_BT: Tensor
    value_BT: Tensor | None = None


@dataclass(frozen=True)
class LossOutput:
    """A scalar to minimise, metrics that add up over micro-batches, and where a clip cut.

    clipped_BT: 1 where the ratio's clip took a token's gradient away; None if nothing clips.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    clipped_BT: Tensor | None = None


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


@dataclass(frozen=True)
class Verdict:
    """A sample against its reference answer. win: 1, 0.5 for a tie, 0, or the mean of both orders.

    agrees: whether both orders said the same; None where there are no orders (scores).
    """

    win: float
    agrees: bool | None = None


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
class SelfMeasuring(Protocol):
    """A generator that has something to tell of itself."""

    def told(self) -> Told:
        """What it found out since the last call."""
        ...


@runtime_checkable
class Closing(Protocol):
    """Something that outlives its last use unless it is closed: a process, a server."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Updated:
    """What an update reports: token-weighted metrics, and off-policy measures per row (B each)."""

    metrics: Metrics
    rows: Mapping[str, Tensor]


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
    ) -> Updated: ...

    def move_reference(self, decay: float) -> None: ...

    def weights(self, version: int) -> Weights: ...

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None: ...

    def peak_memory(self) -> Mapping[str, int]: ...


class Tracker(Protocol):
    """Where metrics go. JSONL is the record, the others are mirrors."""

    def log(self, metrics: Metrics, step: int) -> None: ...

    def close(self) -> None: ...


def num_parameters(model: torch.nn.Module) -> int:
    """Parameters of a model, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
