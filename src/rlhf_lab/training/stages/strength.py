"""Preference strength: how strongly reward models agree with a label, and uses of weak labels.

Wang et al., Secrets of RLHF in Large Language Models Part II (arXiv:2401.06080), section 2: the
strength of a pair is the mean over voters of score(chosen) - score(rejected). The weakest pairs are
often labelled wrongly, the ones above them are ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_lab.tasks.pairs import swap_sides
from rlhf_lab.training.stages.reward_model_options import Treatment

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs with the probability that the chosen one is better, and the gap that it must exceed."""

    rows: Sequence[Row]
    target_P: Tensor
    margin_P: Tensor


def vote(gap_MP: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over voters (divided by their number, as in the paper)."""
    return gap_MP.mean(dim=0), gap_MP.std(dim=0, correction=0)


def weakest(strength_P: Tensor, share: float) -> Tensor:
    """A mask of the weakest share of pairs, P (rounded down); of ties, the first ones."""
    is_weak_P = torch.zeros(len(strength_P), dtype=torch.bool)
    is_weak_P[strength_P.argsort(stable=True)[: int(share * len(strength_P))]] = True
    return is_weak_P


def apply_treatment(
    rows: Sequence[Row], strength_P: Tensor | None, how: Treatment
) -> TrainingPairs:
    """The pairs to train on. strength_P: None if the treatment does not need it."""
    if strength_P is None:
        smooth_P = torch.full((len(rows),), 1 - how.smoothing)
        return TrainingPairs(rows, smooth_P, torch.zeros(len(rows)))
    rows, strength_P = flip_weakest(rows, strength_P, how.flip_share)
    is_soft_P = weakest(strength_P, how.soft_share)
    target_P = torch.where(is_soft_P, strength_P.sigmoid(), torch.tensor(1 - how.smoothing))
    margin_P = strength_P if how.margin else torch.zeros(len(rows))
    kept_P = ~weakest(strength_P, how.drop_share)
    kept = [row for row, keep in zip(rows, kept_P.tolist(), strict=True) if keep]
    return TrainingPairs(kept, target_P[kept_P], margin_P[kept_P])


def flip_weakest(rows: Sequence[Row], strength_P: Tensor, share: float) -> tuple[list[Row], Tensor]:
    """Swap the sides of the weakest share of pairs, and negate their strength."""
    is_weak_P = weakest(strength_P, share)
    swapped = [
        swap_sides(row) if weak else row for row, weak in zip(rows, is_weak_P.tolist(), strict=True)
    ]
    return swapped, torch.where(is_weak_P, -strength_P, strength_P)


def pair_loss(gap_P: Tensor, target_P: Tensor, margin_P: Tensor) -> Tensor:
    """-(target log sigmoid(gap - margin) + (1 - target) log sigmoid(margin - gap)), one a pair.

    Target 1 and margin 0: Bradley-Terry. Target 1 - a: label smoothing. Target sigmoid(strength):
    soft labels. Margin strength: adaptive margin. All from section 2 of arXiv:2401.06080.
    """
    beyond_P = gap_P - margin_P
    return -target_P * logsigmoid(beyond_P) - (1 - target_P) * logsigmoid(-beyond_P)


def strength_metrics(rows: Sequence[Row], strength_P: Tensor) -> dict[str, float]:
    """Mean strength, and the share of labels that gold scores (where known) contradict, among all
    pairs and among the weakest fifth."""
    found = {
        "strength_mean": float(strength_P.mean()),
        "strength_negative": float((strength_P < 0).float().mean()),
    }
    gold = gold_gaps(rows)
    if gold is None:
        return found
    is_wrong_P = (gold < 0).float()
    found["contradicted"] = float(is_wrong_P.mean())
    if (is_weak_P := weakest(strength_P, 0.2)).any():
        found["contradicted_weakest_fifth"] = float(is_wrong_P[is_weak_P].mean())
    return found


def gold_gaps(rows: Sequence[Row]) -> Tensor | None:
    """Gold score of the chosen less that of the rejected, one a pair; None if a pair has none."""
    sides = ("chosen_gold", "rejected_gold")
    if any(row.get(side) is None for row in rows for side in sides):
        return None
    return torch.tensor([row["chosen_gold"] - row["rejected_gold"] for row in rows])
