"""The penalty on KL to the reference: in the reward or in the loss, by an estimator of choice.

Where a penalty belongs and what its gradient estimates: arXiv:2510.01555.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from rlhf_lab.algos import advantages, common
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
        least=0,
        most=100,
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
        """Rewards of responses, less the penalty if it is in the reward, PG."""
        if not self._is_in_reward or not self.kl_coef:
            return reward_PG
        return advantages.less_kl(reward_PG, self.kl_coef, batch, self._terms)

    def token_rewards(self, reward_PG: Tensor, batch: Batch) -> Tensor:
        """Rewards of tokens, less the penalty of each if it is in the reward, BT."""
        kl_coef = self.kl_coef if self._is_in_reward else 0.0
        return advantages.token_rewards(reward_PG, kl_coef, batch, self._terms)

    def plus_kl(self, output: LossOutput, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The loss, plus the penalty if it is in the loss."""
        if self._is_in_reward or not self.kl_coef:
            return output
        penalty = common.kl_penalty(policy, batch, self.kl_coef, self._terms)
        return LossOutput(output.loss + penalty, output.metrics, output.clipped_BT)
