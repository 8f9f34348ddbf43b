"""What a run changes of an algorithm's credit: its scale, and which rows are left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.models.batching import rewards_of
from rlhf_lab.types.data import Batch, Credit, Metrics
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Finish, Group

LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True)
class ReturnRange:
    """A moving average of the range of returns, from their 5th to their 95th percentile. It begins
    with the range of the first round. decay: share of the average that a round keeps."""

    decay: float
    average: float | None = None

    def after(self, credit: Credit, reward_PG: Tensor, batch: Batch) -> ReturnRange:
        """With a round's returns: the targets of the values, or rewards where there are none."""
        per_token = credit.target_BT if credit.return_BT is None else credit.return_BT
        returns = reward_PG.flatten() if per_token is None else per_token[batch.mask_BT > 0]
        low, high = torch.quantile(returns.double(), torch.tensor([LOW, HIGH]).double()).tolist()
        if self.average is None:
            return replace(self, average=high - low)
        return replace(self, average=self.decay * self.average + (1 - self.decay) * (high - low))

    def scaled(self, credit: Credit) -> Credit:
        """Credit divided by the average, but by no less than 1: small returns are not enlarged.
        Targets stay as they are."""
        assert self.average is not None, "a round's returns come before its credit is scaled"
        return replace(credit, value_BT=credit.value_BT / max(1.0, self.average))


def without_rows(
    credit: Credit, batch: Batch, rows: Collection[int], round_: int
) -> tuple[Credit, Metrics]:
    """The credit with none of these rows kept, and how many rows and tokens that leaves out of
    those that the algorithm kept. They still count in the baselines of others.

    Raises UserError for a row that the batch does not have.
    """
    if beyond := [row for row in rows if row >= len(batch)]:
        raise UserError(
            f"fork.without_rows={min(beyond)}: the batch of round {round_} has rows 0 to "
            f"{len(batch) - 1}; choose among them"
        )
    keep_B = credit.keep_B.clone()
    keep_B[sorted(rows)] = False
    gone_B = credit.keep_B & ~keep_B
    tokens = int(batch.mask_BT.sum(dim=1)[gone_B].sum())
    measured = {"sample/without_rows": int(gone_B.sum()), "sample/without_tokens": tokens}
    return replace(credit, keep_B=keep_B), measured


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
