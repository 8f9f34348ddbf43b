"""Tensors and values that travel between the rooms of the lab.

torch is imported for its types alone, so that what reads runs starts without it.

Tensor names end in their shape:

    P prompts (groups)   G samples of one group   B rows = P * G
    S prompt tokens, left-padded   T response tokens, right-padded   V vocabulary

A sample written at weight version w and trained on in round v is v - w rounds old (its lag).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rlhf_lab.types.samples import UNBEGUN, Finish, Group, Prompt, Sample

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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
class GeneratorReport:
    """A generator's own metrics for the round's row, and its notes for the user."""

    measures: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rollout:
    """A generated and scored chunk.

    segments: (step, version) pairs: which version wrote the tokens from that step on. spans: when
    its worker did what. worker: number of the generator, or -1 for the trainer itself.
    """

    chunk: Chunk
    groups: tuple[Group, ...]
    segments: tuple[tuple[int, int], ...]
    tokens: Mapping[str, int]
    spans: tuple[Span, ...] = ()
    worker: int = -1
    report: GeneratorReport = field(default_factory=GeneratorReport)

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
    max_response_B: Tensor
    has_reference_B: Tensor

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


@dataclass(frozen=True)
class Verdict:
    """A sample against its reference answer. win: 1, 0.5 for a tie, 0, or the mean of both orders.

    agrees: whether both orders said the same; None where there are no orders (scores).
    """

    win: float
    agrees: bool | None = None


@dataclass(frozen=True)
class UpdateResult:
    """What an update reports: token-weighted metrics, and off-policy measures per row (B each)."""

    metrics: Metrics
    rows: Mapping[str, Tensor]


def num_parameters(model: torch.nn.Module) -> int:
    """Parameters of a model, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
