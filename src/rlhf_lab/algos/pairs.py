"""Losses of preferred samples: a prompt's samples against each other, or its best one alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import best_and_worst, is_informative
from rlhf_lab.algos.common import (
    credited_likelihood,
    grouped,
    kl_penalty,
    per_token,
    sequence_sum,
    sequence_value,
    sequence_weight,
)
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class Pairs(StrEnum):
    """Which pairs of a group: its best against its worst, or all of unequal reward."""

    best_worst = "best_worst"
    all = "all"


def pair_choice() -> Pairs:
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


@dataclass(frozen=True)
class OnlineDPO(AlgorithmOptions):
    """Online DPO: samples of a prompt compared (arXiv:2402.04792; arXiv:2305.18290, eq. 7).

    DPO on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_dpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2305.18290, eq. 7"
    )
    smoothing: float = limits.share(
        0.0,
        max=0.5,
        about="Share of preferences assumed to be wrong (conservative DPO).",
    )
    pairs: Pairs = pair_choice()
    refresh_every: int = limits.count(
        0,
        min=0,
        max=10**6,
        about="Rounds after which the policy becomes the reference; 0 keeps the first reference.",
        source="arXiv:2404.09656 (hard update); 0: arXiv:2405.07863",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return replace(pair_needs(self.pairs), reference_every=self.refresh_every)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Preferences by reward; groups whose rewards are all equal are dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-log sigmoid of beta times the difference of log-ratios, a mean over pairs and groups."""
        from torch.nn.functional import logsigmoid

        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        right_PGG = (1 - self.smoothing) * logsigmoid(margin_PGG)
        loss_PGG = -right_PGG - self.smoothing * logsigmoid(-margin_PGG)
        return pair_output(loss_PGG, margin_PGG, weight_PGG)


@dataclass(frozen=True)
class OnlineIPO(AlgorithmOptions):
    """Online IPO: the preferred sample's margin is drawn to a fixed one (arXiv:2310.12036, eq. 17).

    IPO on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_ipo")
    beta: float = fields.beta("The loss draws the log-ratios of a pair 1 / (2 beta) nats apart.")
    pairs: Pairs = pair_choice()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return pair_needs(self.pairs)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Preferences by reward; groups whose rewards are all equal are dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Squared distance of the difference of log-ratios from 1 / (2 beta)."""
        gap_PGG, weight_PGG = compared(policy, batch)
        return pair_output(ipo(gap_PGG, self.beta), self.beta * gap_PGG, weight_PGG)


@dataclass(frozen=True)
class OnlineSLiC(AlgorithmOptions):
    """Online SLiC: a hinge on the difference of log-ratios (arXiv:2305.10425; arXiv:2402.04792).

    SLiC's hinge on pairs of the policy's own samples, ordered by the reward."""

    name: str = limits.name("online_slic")
    beta: float = fields.beta(
        "The hinge is 0 once the log-ratios of a pair are 1 / beta nats apart."
    )
    pairs: Pairs = pair_choice()
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return pair_needs(self.pairs)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Preferences by reward; groups whose rewards are all equal are dropped."""
        return pair_credit(reward_PG, batch, self.pairs)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """max(0, 1 - beta * gap): pairs that are 1 / beta nats apart have no gradient."""
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        return pair_output((1 - margin_PGG).relu(), margin_PGG, weight_PGG)


class PairLoss(StrEnum):
    """sigmoid is DPO, ipo draws pairs a fixed margin apart, sft learns the chosen side alone."""

    sigmoid = "sigmoid"
    ipo = "ipo"
    sft = "sft"


@dataclass(frozen=True)
class DPO(AlgorithmOptions):
    """Offline DPO, IPO or SFT on a fixed set of pairs (arXiv:2305.18290, eq. 7; arXiv:2310.12036).

    Offline preference learning; algo=dpo also sets generator=pairs. pair_loss=sft and then
    sigmoid, from the first run's policy, are dSFT and dDPO (Zephyr, arXiv:2310.16944)."""

    name: str = limits.name("dpo")
    beta: float = fields.beta(
        "Strength of the pull to the reference, in 1 / nats.", "arXiv:2305.18290, eq. 7"
    )
    pair_loss: PairLoss = limits.option(
        PairLoss.sigmoid,
        about=(
            "Loss of a pair: sigmoid is DPO, ipo draws the log-ratios a fixed margin apart, sft "
            "learns the chosen response alone."
        ),
        source="ipo: arXiv:2310.12036, eq. 17",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        is_sft = self.pair_loss is PairLoss.sft
        return Needs(group_size=2, trained_rows=1 if is_sft else 2, reference=not is_sft)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """+1 on the chosen, -1 on the rejected; sft keeps the chosen alone."""
        if self.pair_loss is PairLoss.sft:
            return best_credit(reward_PG, batch)
        return pair_credit(reward_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The loss of each pair, a mean over pairs."""
        from torch.nn.functional import logsigmoid

        if self.pair_loss is PairLoss.sft:
            return credited_likelihood(policy, batch)
        gap_PGG, weight_PGG = compared(policy, batch)
        margin_PGG = self.beta * gap_PGG
        is_ipo = self.pair_loss is PairLoss.ipo
        loss_PGG = ipo(gap_PGG, self.beta) if is_ipo else -logsigmoid(margin_PGG)
        return pair_output(loss_PGG, margin_PGG, weight_PGG)


@dataclass(frozen=True)
class BestOfN(AlgorithmOptions):
    """Best-of-K SFT (RAFT): likelihood of the group's best sample (arXiv:2410.18252, section 3.3).

    Likelihood of each group's best sample; run.group_size=2 is the paper's Best-of-2."""

    name: str = limits.name("best_of_n")
    kl_coef: float = fields.kl_in_loss(0.0, source="the paper has none")
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    objective: ClassVar[Objective] = Objective.comparison

    @property
    def needs(self) -> Needs:
        return Needs(group_size=2, trained_rows=1, reference=bool(self.kl_coef))

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """1 on the best sample; nothing else is trained on. Groups of equal rewards are dropped."""
        return best_credit(reward_PG, batch)

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, plus the KL penalty."""
        output = credited_likelihood(policy, batch)
        if not self.kl_coef:
            return output
        return LossOutput(output.loss + kl_penalty(policy, batch, self.kl_coef))
