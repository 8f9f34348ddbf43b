"""The penalty on KL to the reference: in the reward or in the loss, by an estimator of choice.

Where a penalty belongs and what its gradient estimates: arXiv:2510.01555.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import common
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, Needs, PolicyOutput
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


class KLLocation(StrEnum):
    """What a penalty on KL is a part of. auto: as in the algorithm's own paper or code."""

    auto = "auto"
    reward = "reward"
    loss = "loss"


class Estimator(StrEnum):
    """How KL is estimated on samples, from log-ratios of policy to reference. auto: k1 in the
    reward, k3 in the loss."""

    auto = "auto"
    k1 = "k1"
    k2 = "k2"
    k3 = "k3"


TERMS = {Estimator.k1: common.k1, Estimator.k2: common.k2, Estimator.k3: common.k3}


@dataclass(frozen=True)
class KLPenalty(AlgorithmOptions):
    """An algorithm with a penalty on KL. Each one declares `kl_coef`, where its own paper has the
    penalty (`own_location`), and its other needs (`own_needs`)."""

    own_location: ClassVar[KLLocation] = KLLocation.reward
    own_needs: ClassVar[Needs] = Needs()
    name: str = limits.name("")
    kl_coef: float = limits.number(
        0.0,
        min=0,
        max=100,
        about="Weight of the penalty on KL to the reference policy; 0 is no penalty.",
    )
    kl_in: KLLocation = limits.option(
        KLLocation.auto,
        about=(
            "Where the penalty on KL is: in the reward, before credit is made, or in the loss per "
            "token; auto is the algorithm's own form, which kl_coef names."
        ),
    )
    kl_estimator: Estimator = limits.option(
        Estimator.auto,
        about=(
            "Estimator of KL: k1 is log(policy/reference), k2 half its square, k3 reference/policy "
            "- 1 + k1; auto is k1 in the reward and k3 in the loss, where k1 is refused."
        ),
        source="arXiv:2510.01555",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._is_in_reward and self.kl_estimator is Estimator.k1:
            raise UserError(
                "algo.kl_estimator=k1 with the penalty on KL in the loss: the mean of its gradient "
                "is zero whatever the KL; pass algo.kl_estimator=k2 (the gradient of k1 in the "
                "reward) or k3, or algo.kl_in=reward"
            )

    @property
    def needs(self) -> Needs:
        """The reference is read only where the penalty has a weight."""
        return replace(self.own_needs, reference=bool(self.kl_coef))

    @property
    def _is_in_reward(self) -> bool:
        found = self.own_location if self.kl_in is KLLocation.auto else self.kl_in
        return found is KLLocation.reward

    @property
    def _terms(self) -> common.KLTerms:
        usual = Estimator.k1 if self._is_in_reward else Estimator.k3
        return TERMS[usual if self.kl_estimator is Estimator.auto else self.kl_estimator]

    def less_kl(self, reward_PG: Tensor, batch: Batch) -> Tensor:
        """Rewards of responses, PG; if the penalty is in the reward, less kl_coef times
        KL(behaviour || reference), summed over the tokens of each."""
        if not self._is_in_reward or not self.kl_coef:
            return reward_PG
        kl_BT = self._terms(batch.behavior_logp_BT, batch.reference_logp_BT)
        return reward_PG - self.kl_coef * common.sequence_sum(kl_BT, batch).view_as(reward_PG)

    def token_rewards(self, reward_PG: Tensor, batch: Batch) -> Tensor:
        """Rewards of single tokens, BT: the reward at the last one, less the penalty of each if it
        is in the reward, as in N+ (arXiv:2403.17031, the PPO set-up).

        Step rewards are given at the last tokens of their steps, and the last token gets the rest.
        """
        mask_BT, step_BT = batch.mask_BT, batch.step_reward_BT
        is_last_BT = mask_BT * (mask_BT.cumsum(dim=1) == mask_BT.sum(dim=1, keepdim=True))
        rest_B1 = reward_PG.reshape(-1, 1).to(mask_BT.dtype) - step_BT.sum(dim=1, keepdim=True)
        reward_BT = rest_B1 * is_last_BT + step_BT
        if not self._is_in_reward or not self.kl_coef:
            return reward_BT
        kl_BT = self._terms(batch.behavior_logp_BT, batch.reference_logp_BT) * mask_BT
        return reward_BT - self.kl_coef * kl_BT

    def plus_kl(self, output: LossOutput, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The loss, plus the penalty if it is in the loss."""
        if self._is_in_reward or not self.kl_coef:
            return output
        penalty = common.kl_penalty(policy, batch, self.kl_coef, self._terms)
        return LossOutput(output.loss + penalty, output.metrics, output.clipped_BT)
