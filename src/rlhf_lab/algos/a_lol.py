"""A-LoL: likelihood of samples better than expected, with a clipped ratio (arXiv:2305.14718)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import prompt_value_error
from rlhf_lab.algos.leftover import Leftover
from rlhf_lab.types.data import Batch, LossOutput, Needs, PolicyOutput
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class ALoL(Leftover):
    """Advantage-leftover lunch; its values are learned beside the policy, or before it."""

    value_rounds: int = fields.value_rounds()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_rounds and not self.value_baseline:
            raise UserError(
                f"algo.value_rounds={self.value_rounds} with algo.value_baseline=false: no value "
                "model is there to learn and freeze; pass algo.value_baseline=true"
            )

    @property
    def needs(self) -> Needs:
        return replace(super().needs, value_rounds=self.value_rounds)

    def at_round(self, round_: int, num_rounds: int) -> ALoL:
        """The algorithm of a round, counted from 0: only values learn in the first `value_rounds`,
        and only the policy after them."""
        if not self.value_rounds:
            return self
        form = LearnsValues if round_ < self.value_rounds else HasFrozenValues
        return form(**vars(self))


@dataclass(frozen=True)
class LearnsValues(ALoL):
    """A round in which the policy stays the reference, and the values of its samples are learned
    (arXiv:2305.14718, figure 1)."""

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The error of the values, and a gradient of zero for the policy."""
        error = prompt_value_error(policy, batch)
        return LossOutput(error + 0 * policy.logp_BT.sum(), {"ppo/value_error": error})


@dataclass(frozen=True)
class HasFrozenValues(ALoL):
    """A round after the values were learned. No gradient at all reaches them: one of zero would
    let AdamW move them on by what it averages."""

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The policy's loss; the error of the values is only reported."""
        error = prompt_value_error(policy, batch).detach()
        return LossOutput(self.policy_loss(policy, batch), {"ppo/value_error": error})
