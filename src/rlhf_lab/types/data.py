"""Tensors and values that the rooms pass to each other: batches, credit, losses, weights.

Tensor names end in their shape:

    P prompts (groups)   G samples of one group   B rows = P * G
    S prompt tokens, left-padded   T response tokens, right-padded   V vocabulary
    U response tokens and those of an environment between them, right-padded
    H bins of a histogram of values   K tokens of the reference's distribution before a token

A sample written by weight version w and trained on in round v has a lag of v - w rounds.
torch is imported for its types alone, so that programs which only read runs start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Clock = Callable[[], float]
Metrics = dict[str, Any]


class Reduction(StrEnum):
    """How the terms of single tokens are weighted in the loss of an update.

    sequence_mean: a mean over rows of means over tokens. token_mean: a mean over tokens.
    prompt_mean: a mean over groups of means over all tokens of a group (ScaleRL, arXiv:2510.13786).
    per_limit: every token counts 1 / (rows * response limit), whatever the lengths (Dr. GRPO,
    arXiv:2503.20783); the other three have weights that sum to one.
    """

    sequence_mean = "sequence_mean"
    token_mean = "token_mean"
    prompt_mean = "prompt_mean"
    per_limit = "per_limit"


class Objective(StrEnum):
    """What a loss computes from the policy's log-probs; corrections apply to some of these.

    token_ratio, sequence_ratio: policy over proximal policy, per token or per response. likelihood:
    plain log-probs weighted by credit. comparison: samples of a prompt against each other, without
    a ratio to the behaviour policy.
    """

    token_ratio = "token_ratio"
    sequence_ratio = "sequence_ratio"
    likelihood = "likelihood"
    comparison = "comparison"


class ValueModel(StrEnum):
    """Where values come from: no value model, a network of its own, or a head on the policy."""

    none = "none"
    own = "own"
    shared = "shared"


@dataclass(frozen=True)
class Bins:
    """Equal bins of histograms of values, from least to most in units of the values' targets."""

    number: int
    least: float
    most: float


@dataclass(frozen=True)
class Needs:
    """What an algorithm reads of a run besides samples and rewards, and what it does with it. The
    loss and the credit of an algorithm see no tensor that it does not declare here.

    group_size: minimum of samples per prompt. greedy: each group's last sample is decoded greedily.
    oversample: groups generated per group trained on; those with unequal rewards are preferred.
    reference_every: rounds after which the reference moves (0: never), to reference_decay *
    reference + (1 - reference_decay) * policy. bins: of a value model that classifies; None: it
    regresses. teacher: path of the reference ('': not named yet); None: the initial policy.
    top_tokens: tokens that the reference finds most likely before each token, whose log-probs the
    loss reads (0: the whole vocabulary); None: none. ratio_gradients: whether credit reads
    `Batch.log_ratio_gradient_B`, at one backward pass a response. reference: whether credit or loss
    reads the reference's log-probs of the samples. trained_rows: rows of a group that are trained
    on at most, whatever its size; 0: of all its rows. scales_with_reward: whether credit is in
    units of the reward; False for one that is standardised, whitened, or made of the rewards' order
    alone. value_rounds: rounds at the start in which the policy does not learn. lam: of GAE; below
    1, credit rests on values of later tokens. constraints: whether rewards of 0 or less mean that a
    constraint is violated. length_penalty: whether credit punishes long responses.
    """

    group_size: int = 1
    greedy: bool = False
    oversample: float = 1.0
    values: ValueModel = ValueModel.none
    reference_every: int = 0
    reference_decay: float = 0.0
    bins: Bins | None = None
    teacher: str | None = None
    top_tokens: int | None = None
    ratio_gradients: bool = False
    reference: bool = False
    trained_rows: int = 0
    scales_with_reward: bool = False
    value_rounds: int = 0
    lam: float = 1.0
    constraints: bool = False
    length_penalty: bool = False


@dataclass(frozen=True)
class CorrectionNeeds:
    """Which of these three tensors of a batch a correction reads, and which of its methods besides
    `weight` and `step` are called.

    writer_logp: `Batch.writer_logp_BT`, at up to one more forward pass of a sample for each version
    that wrote it; its `terms` are measured. entropy: `Batch.entropy_BT`, at such passes. lag:
    `Batch.lag_BT`. whole_update: all tokens of an update decide the weight of each, by `fitted`;
    anchors_at_start must be true. proximal: the loss's ratios are against the log-probs of the
    method `proximal`.
    """

    writer_logp: bool = False
    entropy: bool = False
    lag: bool = False
    whole_update: bool = False
    proximal: bool = False


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters as peft saves them: the contents of adapter_config.json, which names their
    base model, and of adapter_model.safetensors, A and B of each module by name."""

    config: Mapping[str, Any]
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """One immutable version of the policy. version: rounds of training done. state: by name.

    adapters: what the state was merged from, where adapters are trained. Files hold these alone:
    what is read from one has no state until it is merged.
    """

    version: int
    state: Mapping[str, Tensor]
    adapters: Adapters | None = None

    def at(self, step: int) -> Weights:
        """A single version is the simplest `WeightFeed`: these weights write every token."""
        return self


class Writer(IntEnum):
    """Whose a token of `Batch.text_BU` is."""

    padding = 0
    policy = 1
    environment = 2


@dataclass(frozen=True)
class Batch:
    """Rows of whole groups, in group order, as tensors. Padding is 0 in every mask and weight.

    Log-probs are natural, of the response tokens, at the sampling temperature: behavior (the policy
    that wrote them), proximal (the denominator of the loss's ratios: the behaviour, or the policy
    at the round's start), reference, writer (what the version that wrote a token gives it in the
    trainer's model, for a correction that splits off the generator's mismatch; else the
    behaviour). lag_BT: rounds since each token was written, entropy_BT: of the distribution that it
    was drawn from, in the trainer's model, each for a correction that asks; else 0.
    credit_BT: advantages, or whatever `Algorithm.credit` gives.
    weight_BT: weight of each token in the loss (see Reduction). value_BT: values before the round's
    updates; target_BT: their regression targets. step_reward_BT: reward of each step at its last
    token, a part of the row's reward. turn_BT: number of the turn of an episode that a token is
    part of, from 0; 0 without turns. group_B: number of the row's group. version_B: oldest weight
    version that wrote the row. max_response_B: response limit in tokens. has_reference_B: False
    where the reference was not run; its log-probs are then those of the behaviour.
    text_BU: what stands behind the prompt where an environment wrote some of it; writer_BU: whose
    each token is (see Writer). Without an environment U is 0, and the response is all there is. All
    columns T are of response tokens, which the policy wrote, whatever stands between them.
    log_ratio_gradient_B: for an algorithm that asks, else 0: log of the norm of the gradient of the
    response's ratio, policy at the round's start over behaviour, by what is trained of the policy.
    """

    prompt_BS: Tensor
    prompt_mask_BS: Tensor
    response_BT: Tensor
    mask_BT: Tensor
    behavior_logp_BT: Tensor
    proximal_logp_BT: Tensor
    reference_logp_BT: Tensor
    writer_logp_BT: Tensor
    lag_BT: Tensor
    entropy_BT: Tensor
    value_BT: Tensor
    credit_BT: Tensor
    target_BT: Tensor
    step_reward_BT: Tensor
    turn_BT: Tensor
    weight_BT: Tensor
    group_B: Tensor
    version_B: Tensor
    max_response_B: Tensor
    has_reference_B: Tensor
    log_ratio_gradient_B: Tensor
    text_BU: Tensor
    writer_BU: Tensor

    def __len__(self) -> int:
        return int(self.response_BT.shape[0])

    @property
    def has_environment(self) -> bool:
        """Whether an environment wrote some of what stands behind the prompts."""
        return self.text_BU.shape[1] > 0

    @property
    def read_length_B(self) -> Tensor:
        """Tokens behind the prompt that models read, B."""
        read_BU = self.writer_BU > 0 if self.has_environment else self.mask_BT
        return read_BU.sum(dim=1)

    @property
    def read_width(self) -> int:
        """Columns behind the prompt that models read."""
        return int((self.text_BU if self.has_environment else self.response_BT).shape[1])

    def rows(self, index_B: Tensor) -> Batch:
        """The rows selected by an index or boolean tensor, in that order."""
        return Batch(**{name: tensor[index_B] for name, tensor in vars(self).items()})


@dataclass(frozen=True)
class Credit:
    """An algorithm's credit: a number per token (an advantage), and which rows to train on.

    target_BT: regression targets of the value model; None without one. return_BT: the returns in
    points of reward, where they are not the targets.
    """

    value_BT: Tensor
    keep_B: Tensor
    target_BT: Tensor | None = None
    return_BT: Tensor | None = None


@dataclass(frozen=True)
class PolicyOutput:
    """A forward pass of the policy: log-probs of the response tokens at the temperature, entropy of
    each token's distribution, and the value of the state before it where there is a value model.

    value_logits_BTH: of its H bins, where the value model classifies; the value is their mean.
    top_BTK: tokens that the reference finds most likely (see Needs.top_tokens); top_logp_BTK: their
    log-probs under the policy; reference_top_logp_BTK: under the reference. Over whole
    vocabularies, so those of K tokens sum to less than one.
    """

    logp_BT: Tensor
    entropy_BT: Tensor
    value_BT: Tensor | None = None
    value_logits_BTH: Tensor | None = None
    top_BTK: Tensor | None = None
    top_logp_BTK: Tensor | None = None
    reference_top_logp_BTK: Tensor | None = None


@dataclass(frozen=True)
class LossOutput:
    """A scalar to minimise, and metrics that add up over micro-batches.

    clipped_BT: 1 where the clip of the ratio removes a token's gradient; None if the loss clips
    nothing.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    clipped_BT: Tensor | None = None


@dataclass(frozen=True)
class Verdict:
    """A judge's comparison of a sample with the reference answer.

    win: 1, 0.5 for a tie, 0, or the mean over both orders of presentation. agrees: whether both
    orders gave the same verdict; None where the judge scores instead of comparing.
    """

    win: float
    agrees: bool | None = None


@dataclass(frozen=True)
class UpdateResult:
    """The result of an optimizer update: metrics, and off-policy measures of every row (B each)."""

    metrics: Metrics
    rows: Mapping[str, Tensor]
