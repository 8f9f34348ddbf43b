"""What preference losses share: which samples are compared, and by how much they differ."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos.advantages import best_and_worst, is_informative
from rlhf_lab.algos.common import grouped, per_token, sequence_sum, sequence_value, sequence_weight
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, PolicyOutput

if TYPE_CHECKING:
    from torch import Tensor


class Pairs(StrEnum):
    """Which pairs of a group: its best against its worst, or all of unequal reward."""

    best_worst = "best_worst"
    all = "all"


def pair_choice() -> Pairs:
    """The option `pairs` of a preference loss."""
    about = (
        "Which samples of a group make preference pairs: the best against the worst, or all pairs "
        "of unequal reward."
    )
    return limits.option(Pairs.best_worst, about=about)


def pair_needs(pairs: Pairs) -> Needs:
    """What a preference loss on such pairs needs."""
    return Needs(group_size=2, reference=True, trained_rows=2 if pairs is Pairs.best_worst else 0)


def pair_credit(reward_PG: Tensor, batch: Batch, pairs: Pairs = Pairs.best_worst) -> Credit:
    """best_worst: +1 for the best sample, -1 for the worst; no other is trained on. all: how many
    samples of its group a sample beats. Groups whose rewards are all equal are dropped."""
    if pairs is Pairs.all:
        beaten_PG = (reward_PG.unsqueeze(2) > reward_PG.unsqueeze(1)).sum(dim=2)
        keep_PG = is_informative(reward_PG).unsqueeze(1).expand_as(reward_PG)
        return Credit(per_token(beaten_PG, batch), keep_PG.flatten())
    best_PG, worst_PG = best_and_worst(reward_PG)
    return marked(best_PG - worst_PG, batch)


def best_credit(reward_PG: Tensor, batch: Batch) -> Credit:
    """1 for the best of each group, alone trained on. Groups of equal rewards are dropped."""
    return marked(best_and_worst(reward_PG)[0], batch)


def marked(sign_PG: Tensor, batch: Batch) -> Credit:
    """The sign as credit; rows of sign 0 are not trained on."""
    return Credit(per_token(sign_PG, batch), keep_B=sign_PG.flatten() != 0)


def compared(policy: PolicyOutput, batch: Batch) -> tuple[Tensor, Tensor]:
    """For samples i, j of each group: log(pi / pi_reference) of i minus that of j, in nats, and the
    weight of the pair, PGG each.

    Pairs in which i has more credit share the group's weight equally; the others weigh 0.
    """
    log_ratio_PG = grouped(sequence_sum(policy.logp_BT - batch.reference_logp_BT, batch), batch)
    credit_PG = grouped(sequence_value(batch.credit_BT, batch), batch)
    gap_PGG = log_ratio_PG.unsqueeze(2) - log_ratio_PG.unsqueeze(1)
    is_pair_PGG = (credit_PG.unsqueeze(2) > credit_PG.unsqueeze(1)).to(gap_PGG.dtype)
    share_PGG = is_pair_PGG / is_pair_PGG.sum(dim=(1, 2), keepdim=True)
    weight_P11 = grouped(sequence_weight(batch), batch).sum(dim=1).view(-1, 1, 1)
    return gap_PGG, share_PGG * weight_P11


def ipo(gap_PGG: Tensor, beta: float) -> Tensor:
    """IPO's loss per pair, (gap - 1 / (2 beta))^2 (arXiv:2310.12036, eq. 17), PGG."""
    return (gap_PGG - 1 / (2 * beta)).square()


def pair_output(loss_PGG: Tensor, margin_PGG: Tensor, weight_PGG: Tensor) -> LossOutput:
    """The mean loss over pairs. Metrics: the mean margin, and the share of pairs with a positive
    one, which the policy orders as the reward does."""
    metrics = {
        "dpo/margin": (margin_PGG * weight_PGG).sum(),
        "dpo/accuracy": ((margin_PGG > 0) * weight_PGG).sum(),
    }
    return LossOutput((loss_PGG * weight_PGG).sum(), metrics)
