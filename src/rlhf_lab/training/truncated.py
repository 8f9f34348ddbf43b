"""Samples that the response limit cut off, left out of the updates (run.mask_truncated)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rlhf_lab.models.batching import rewards_of
from rlhf_lab.types.data import Batch, Credit, Metrics
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Finish, Group


def without_truncated(credit: Credit, groups: Sequence[Group]) -> tuple[Credit, Metrics]:
    """The credit with no truncated sample kept, and the share of samples that this leaves out.

    What others are compared with stays: a truncated sample counts in means and deviations of its
    group and of the round, as in overlong filtering (arXiv:2503.14476, section 3.4,
    and arXiv:2508.08221).
    """
    truncated_B = torch.tensor(
        [sample.finish is Finish.length for group in groups for sample in group.samples]
    )
    masked_B = credit.keep_B & truncated_B
    keep_B = credit.keep_B & ~truncated_B
    return replace(credit, keep_B=keep_B), {"sample/masked": float(masked_B.float().mean())}


def credit_among_ended(
    algo: Algorithm, groups: Sequence[Group], batch: Batch
) -> tuple[Credit, Metrics]:
    """The credit of an algorithm that chooses among the samples of a group, as if the group had no
    truncated ones; the shares of samples that this leaves out, and of groups.

    A group of fewer than two others has nothing to choose from, and no row of it is kept.
    """
    ended_PG = torch.tensor(
        [[sample.finish is not Finish.length for sample in group.samples] for group in groups]
    )
    reward_PG, count_P = rewards_of(groups), ended_PG.sum(dim=1)
    value_BT = torch.zeros_like(batch.mask_BT)
    keep_B = torch.zeros(len(batch), dtype=torch.bool)
    # Algorithms take groups of one size.
    for count in sorted({*count_P.tolist()} - {0, 1}):
        present_PG = ended_PG & (count_P == count).unsqueeze(1)
        rows = torch.where(present_PG.flatten())[0]
        credit = algo.credit(reward_PG[present_PG].view(-1, count), batch.rows(rows))
        value_BT[rows], keep_B[rows] = credit.value_BT, credit.keep_B
    return Credit(value_BT, keep_B), {
        "sample/masked": 1 - float(ended_PG.float().mean()),
        "sample/groups_masked": float((count_P < 2).float().mean()),
    }
