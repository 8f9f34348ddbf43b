"""The training loop that the supervised stages share, and supervised fine-tuning on references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

import torch
from torch.nn import functional

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.models.batching import collate, token_weights
from rlhf_lab.tasks.chat import answer_tokens
from rlhf_lab.tasks.references import USUAL, LongReferences, ReferenceForm, cut_to
from rlhf_lab.training.stages.options import LossOn, SFTOptions, SupervisedOptions
from rlhf_lab.types.data import (
    Batch,
    LossOutput,
    Needs,
    Objective,
    PolicyOutput,
    Reduction,
    Weights,
)
from rlhf_lab.types.protocols import Engine, Loss
from rlhf_lab.types.samples import Group, Prompt
from rlhf_lab.types.text_frame import TextFrame


class Bar(Protocol):
    """Where progress goes."""

    def advance(self, amount: int = 1, **numbers: float) -> None: ...


@dataclass(frozen=True)
class SupervisedLoss:
    """A loss of the supervised stages: it reads no other policy than the one that it trains."""

    reduction: ClassVar[Reduction] = Reduction.token_mean
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs()


def fit(
    engine: Engine,
    data_of_step: Callable[[int], tuple[Batch, Loss]],
    num_steps: int,
    options: SupervisedOptions,
    bar: Bar,
) -> list[float]:
    """Updates at the rates of the options; the loss of every step.

    The model stays in eval mode: no dropout anywhere in the pipeline (N+ detail 7).
    """
    losses = []
    for step in range(num_steps):
        batch, loss = data_of_step(step)
        rate = options.rate(step, num_steps)
        losses.append(engine.update(batch, loss, NoCorrection(), rate).metrics["loss"])
        bar.advance(1, loss=losses[-1])
    return losses


Answers = Callable[[Sequence[Prompt]], list[Group]]


@dataclass(frozen=True)
class CrossEntropy(SupervisedLoss):
    """Mean negative log-likelihood a token, in nats. num_tokens: of the whole update."""

    num_tokens: float

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        return LossOutput(-policy.logp_BT.sum() / self.num_tokens)


def train_sft(
    engine: Engine,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    held_out: Sequence[Prompt],
    answers: Answers,
    options: SFTOptions,
    bar: Bar,
) -> tuple[dict[str, float], Weights]:
    """Fit the engine's policy; returns the metrics and the policy. prompts: an endless stream,
    `prompts[i]` exists for every i, of which an epoch has len(prompts). answers: what it learns to
    write for some prompts, as groups of one sample."""
    num_steps = options.num_steps(len(prompts))
    pad = TextFrame(tokenizer).pad

    def batch_of(chosen: Sequence[Prompt]) -> Batch:
        return collate(answers(chosen), pad)

    def data_of_step(step: int) -> tuple[Batch, CrossEntropy]:
        chosen = [prompts[step * options.batch + row] for row in range(options.batch)]
        return counted(batch_of(chosen), options.loss_on)

    losses = fit(engine, data_of_step, num_steps, options, bar)
    weights = engine.weights(num_steps)
    held = batch_of(held_out)
    logp_BT = engine.logp(held, weights)
    validation = float(-logp_BT.sum() / held.mask_BT.sum())
    tail = losses[-20:]
    metrics = {"train_loss": sum(tail) / len(tail), "validation_loss": validation}
    return metrics, weights


@dataclass(frozen=True)
class StageReferences:
    """What SFT learns of references: groups of one sample, cut at the lengths of the stage (N+
    detail 4). seen: how many were read, and how many of them were cut."""

    tokenizer: Any
    max_response_tokens: int
    options: SFTOptions
    form: ReferenceForm = USUAL
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, prompts: Sequence[Prompt]) -> list[Group]:
        """The references of these prompts."""
        groups = []
        for prompt in prompts:
            tokens, limit = self._tokens(prompt), self._limit(prompt)
            self.seen["read"] += 1
            self.seen["cut"] += len(tokens) > limit
            sample = cut_to(limit, tokens, prompt.example, self.form.long)
            groups.append(Group(prompt, (sample,)))
        return groups

    def fits(self, prompt: Prompt) -> bool:
        """Whether a reference need not be cut."""
        return len(self._tokens(prompt)) <= self._limit(prompt)

    @property
    def note(self) -> str:
        """What was cut, in a line; '' if nothing was."""
        if not self.seen["cut"]:
            return ""
        how = "with" if self.form.long is LongReferences.cut_with_end else "without"
        return (
            f"sft: {self.seen['cut']:,} of {self.seen['read']:,} references were too long and were "
            f"cut {how} an end token (task.long_references={self.form.long})"
        )

    def _tokens(self, prompt: Prompt) -> list[int]:
        example = prompt.example
        return answer_tokens(self.tokenizer, self.form.chat, example, example.reference)

    def _limit(self, prompt: Prompt) -> int:
        limit = self.max_response_tokens
        if self.options.max_tokens:
            limit = min(limit, self.options.max_tokens - len(prompt.tokens))
        return limit


def counted(batch: Batch, loss_on: LossOn) -> tuple[Batch, CrossEntropy]:
    """The batch with the tokens that the loss counts as its responses, and the loss."""
    if loss_on is LossOn.all:
        batch = whole_sequence(batch)
    weighted = replace(batch, weight_BT=token_weights(batch, Reduction.token_mean))
    return weighted, CrossEntropy(float(batch.mask_BT.sum()))


def whole_sequence(batch: Batch) -> Batch:
    """The same rows with all but the first prompt column counted as response. What is known of
    response tokens alone is 0 for the tokens of the prompt."""
    prompt_BS, mask_BS = batch.prompt_BS, batch.prompt_mask_BS
    num_moved = prompt_BS.shape[1] - 1
    names = [field.name for field in fields(batch) if field.name.endswith("_BT")]
    padded = {name: functional.pad(getattr(batch, name), (num_moved, 0)) for name in names}
    padded["response_BT"] = torch.cat([prompt_BS[:, 1:], batch.response_BT], dim=1)
    padded["mask_BT"] = torch.cat([mask_BS[:, 1:].to(batch.mask_BT.dtype), batch.mask_BT], dim=1)
    return replace(batch, prompt_BS=prompt_BS[:, :1], prompt_mask_BS=mask_BS[:, :1], **padded)
