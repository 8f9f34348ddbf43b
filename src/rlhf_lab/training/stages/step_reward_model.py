"""A process reward model: whether each step of an answer is right, from labels of steps.

Binary cross-entropy at the last token of each step (arXiv:2305.20050, section 2.6; labels between
0 and 1 as in arXiv:2312.08935, eq. 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rlhf_lab.models.batching import pad_right
from rlhf_lab.training.stages.options import RewardModelOptions
from rlhf_lab.training.stages.scored_rows import row_batch
from rlhf_lab.training.stages.step_labels import LabelledSteps
from rlhf_lab.training.stages.supervised import Bar, SupervisedLoss, fit
from rlhf_lab.types.data import Batch, LossOutput, Needs, PolicyOutput, ValueModel, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.randomness import stable_hash


@dataclass(frozen=True)
class StepLoss(SupervisedLoss):
    """Cross-entropy of the labels, a mean over the steps of an update, which the batch's weights
    are spread over."""

    needs: ClassVar[Needs] = Needs(values=ValueModel.own)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        assert policy.value_BT is not None, "the network of the stage scores tokens"
        return LossOutput((cross_entropy(policy.value_BT, batch) * batch.weight_BT).sum())


def cross_entropy(score_BT: Tensor, batch: Batch) -> Tensor:
    """Of the labels and the sigmoid of the scores, nats, at every token."""
    return binary_cross_entropy_with_logits(score_BT, batch.target_BT, reduction="none")


def step_batch(rows: Sequence[LabelledSteps]) -> Batch:
    """Rows as a batch: the target is a step's label at its last token, where alone the weight is
    above 0; weights sum to 1."""
    batch = row_batch([row.tokens for row in rows], torch.arange(len(rows)))
    labels, weights = [], []
    number = sum(len(row.ends) for row in rows)
    for row in rows:
        label, weight = [0.0] * len(row.tokens), [0.0] * len(row.tokens)
        for end, value in zip(row.ends, row.labels, strict=True):
            label[end], weight[end] = value, 1 / number
        labels.append(label)
        weights.append(weight)
    columns = (pad_right(cells, torch.float32) for cells in (labels, weights))
    target_BT, weight_BT = columns
    return replace(batch, target_BT=target_BT, weight_BT=weight_BT)


def train_step_reward_model(
    engine: Engine,
    rows: Sequence[LabelledSteps],
    held_out: Sequence[LabelledSteps],
    options: RewardModelOptions,
    seed: int,
    bar: Bar,
) -> tuple[dict[str, float], Weights]:
    """Fit the engine's ScoreNetwork, which scores all tokens; metrics and the trained weights."""
    per_epoch = len(rows) // options.batch
    if not per_epoch:
        raise UserError(
            f"reward_model.batch={options.batch} is more than the {len(rows)} rows to train on: "
            "lower it, or add rows"
        )

    def data_of_step(step: int) -> tuple[Batch, StepLoss]:
        epoch, place = divmod(step, per_epoch)
        key = stable_hash(seed, "steps", epoch) & (2**63 - 1)
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(key)).tolist()
        chosen = order[place * options.batch : (place + 1) * options.batch]
        return step_batch([rows[index] for index in chosen]), StepLoss()

    losses = fit(engine, data_of_step, per_epoch * options.epochs, options, bar)
    tail = losses[-20:]
    metrics = held_out_metrics(engine, held_out, options.batch) | {
        "train_loss": sum(tail) / len(tail),
        "train_rows": float(len(rows)),
    }
    return metrics, engine.weights(len(losses))


def held_out_metrics(engine: Engine, rows: Sequence[LabelledSteps], size: int) -> dict[str, float]:
    """Accuracy and loss over the steps of held-out rows, and what a constant answer would have:
    a step counts as right from 0.5 on."""
    right: list[bool] = []
    labels: list[bool] = []
    losses: list[float] = []
    for start in range(0, len(rows), size):
        batch = step_batch(rows[start : start + size])
        score_BT = engine.values(batch)
        loss_BT = cross_entropy(score_BT, batch)
        is_end_BT = batch.weight_BT > 0
        label_N = batch.target_BT[is_end_BT] >= 0.5
        right += ((score_BT[is_end_BT] >= 0) == label_N).tolist()
        labels += label_N.tolist()
        losses += loss_BT[is_end_BT].tolist()
    share = sum(labels) / len(labels)
    return {
        "accuracy": sum(right) / len(right),
        "accuracy_of_a_constant": max(share, 1 - share),
        "held_out_loss": sum(losses) / len(losses),
        "held_out_steps": float(len(right)),
    }
