"""Four rows on which behaviour, proximal, reference and policy differ, and how to get a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlhf_lab.models.batching import collate
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Group
from tests.support.examples import credited, group

Rows = Sequence[Sequence[float]]

# Two prompts with two samples each; lengths 3, 1, 2 and 3.
BEHAVIOR = [[-1.0, -2.0, -0.7], [-0.5], [-0.25, -0.8], [-1.5, -0.5, -1.0]]
PROXIMAL = [[-0.95, -2.05, -0.65], [-0.45], [-0.3, -0.85], [-1.4, -0.6, -1.05]]
REFERENCE = [[-1.5, -1.8, -0.9], [-1.0], [-0.5, -0.7], [-1.0, -1.0, -1.2]]
POLICY = [[-0.6, -2.1, -0.75], [-0.1], [-0.6, -0.75], [-1.45, -0.9, -1.1]]
VALUE = [[0.5, 0.2, -0.3], [1.0], [0.4, 0.8], [0.1, -0.2, 0.3]]
REWARD = [[1.0, 3.0], [2.0, 0.5]]
LENGTHS = [3, 1, 2, 3]
# Log-ratios of policy to proximal; with a clip of 0.2, tokens leave the range upwards in rows 0 and
# 1, downwards in rows 2 and 3, and one of each two also has the advantage that makes the clip bite.
AWAY = [[0.35, -0.05, -0.10], [0.35], [-0.30, 0.10], [-0.05, -0.30, -0.05]]


def two_prompts() -> list[Group]:
    return [group(0, BEHAVIOR[:2], REWARD[0]), group(1, BEHAVIOR[2:], REWARD[1], prompt_len=4)]


def padded(rows: Rows, like: Tensor) -> Tensor:
    """Rows of numbers left-aligned in zeros, in the shape of another tensor."""
    out_BT = torch.zeros_like(like)
    for index, row in enumerate(rows):
        out_BT[index, : len(row)] = torch.tensor(row)
    return out_BT


def collated(limit: int = 0) -> Batch:
    """The four rows with their proximal, reference and values, before any credit."""
    batch = collate(two_prompts(), 0, limit)
    return replace(
        batch,
        proximal_logp_BT=padded(PROXIMAL, batch.mask_BT),
        reference_logp_BT=padded(REFERENCE, batch.mask_BT),
        value_BT=padded(VALUE, batch.mask_BT),
    )


def four_rows(algo: Algorithm, limit: int = 0) -> Batch:
    """What the algorithm keeps of the four rows."""
    return credited(algo, two_prompts(), collated(limit))[0]


def one_prompt(algo: Algorithm, reward: list[float], reference: Rows) -> Batch:
    """One group of samples of one token each, found as likely as e^-1 by their writer."""
    groups = [group(0, [[-1.0]] * len(reward), reward)]
    batch = collate(groups, 0)
    return credited(
        algo, groups, replace(batch, reference_logp_BT=padded(reference, batch.mask_BT))
    )[0]


def output_of(algo: Algorithm, policy: Rows, batch: Batch, value: Rows | None = None) -> LossOutput:
    """The loss where the policy finds these log-probs, and the value model these values."""
    logp_BT = padded(policy, batch.mask_BT)
    value_BT = None if value is None else padded(value, batch.mask_BT)
    return algo.loss(PolicyOutput(logp_BT, torch.zeros_like(logp_BT), value_BT), batch)


def loss_of(algo: Algorithm, policy: Rows, batch: Batch, value: Rows | None = None) -> float:
    return float(output_of(algo, policy, batch, value).loss)


def cells(value_BT: Tensor, lengths: Sequence[int] = LENGTHS) -> list[float]:
    """The numbers of the response tokens, row after row; what is not one must be zero."""
    assert not any(value_BT[row, length:].any() for row, length in enumerate(lengths))
    return [float(x) for row, n in enumerate(lengths) for x in value_BT[row, :n]]


def flat(rows: Rows) -> list[float]:
    return [x for row in rows for x in row]


def pessimistic(ratio: float, advantage: float, low: float, high: float) -> float:
    """PPO's objective of one action (arXiv:1707.06347, eq. 7), in plain numbers."""
    return min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
