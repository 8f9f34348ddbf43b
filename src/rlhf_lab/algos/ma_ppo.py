"""MA-PPO: PPO whose actions are runs of tokens, as in MA-RLHF (arXiv:2410.02743, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.actor_critic import ActorCritic
from rlhf_lab.algos.common import clipped_surrogate
from rlhf_lab.algos.macro_actions import MacroActions, MacroValue, Termination, macro_actions
from rlhf_lab.algos.off_policy import ratio_of
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, Objective, PolicyOutput
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MacroPPO(ActorCritic):
    """PPO whose actions are runs of tokens with one advantage, ratio and value each."""

    name: str = limits.name("ma_ppo")
    macro_tokens: int = limits.count(
        5,
        most=10**6,
        about="Tokens of one macro action (n-gram termination); 1 is PPO.",
        source="arXiv:2410.02743, section 3",
    )
    termination: Termination = limits.option(
        Termination.fixed,
        about=(
            "Where a macro action ends: after macro_tokens (fixed), after 1, 2, 3, 5 or 10 tokens "
            "(random), before a token less likely than the one before it (perplexity), or with "
            "each turn of an episode (turn)."
        ),
        source="arXiv:2410.02743, section 3.2; turns: after ArCHer, arXiv:2402.19446",
    )
    macro_value: MacroValue = limits.option(
        MacroValue.first,
        about=(
            "Value of a macro action: that before its first token, that before its last one, their "
            "mean (equal), or a mean with shares that fall as 1 / place (position)."
        ),
        source="arXiv:2410.02743, section 3.2",
    )
    clip: float = fields.clip(0.2, of="macro action's")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.macro_value is not MacroValue.first and (self.symlog_values or self.value_bins):
            raise UserError(
                f"algo.macro_value={self.macro_value} with squashed values or bins of values: what "
                "is learned is of one value, not of a mean; pass algo.macro_value=first, or "
                "algo.symlog_values=false and algo.value_bins=0"
            )

    @property
    def objective(self) -> Objective:
        is_one = self.termination is Termination.fixed and self.macro_tokens == 1
        return Objective.token_ratio if is_one else Objective.sequence_ratio

    def _actions(self, batch: Batch) -> MacroActions:
        return macro_actions(self.termination, self.macro_tokens, batch)

    def advantages(self, reward_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """GAE over macro actions; only first tokens have a target."""
        actions = self._actions(batch)
        value_BT = actions.values(batch.value_BT, self.macro_value)
        reward_BM, value_BM, mask_BM = map(
            actions.compact, (actions.sums(reward_BT), value_BT, batch.mask_BT)
        )
        gain_BT, learnt_BT = map(actions.spread, self.gains(reward_BM, value_BM, mask_BM))
        return gain_BT, (learnt_BT + value_BT) * actions.first_BT

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per macro action."""
        away_BT = (policy.logp_BT - batch.proximal_logp_BT) * batch.mask_BT
        ratio_BT = ratio_of(self._actions(batch).sums(away_BT))
        loss_BT, cut_BT = clipped_surrogate(ratio_BT, batch.credit_BT, self.clip, self.clip)
        loss = (loss_BT * batch.weight_BT).sum()
        return LossOutput(loss, clipped_BT=cut_BT * batch.mask_BT)

    def error(self, policy: PolicyOutput, batch: Batch) -> Tensor:
        """The clipped error of the macro actions' values. Each weighs as much as its tokens do, so
        that its value does too."""
        actions = self._actions(batch)
        if policy.value_BT is not None:
            value_BT = actions.values(policy.value_BT, self.macro_value)
            policy = replace(policy, value_BT=value_BT)
        batch = replace(batch, value_BT=actions.values(batch.value_BT, self.macro_value))
        weight_BT = actions.first_BT * actions.sums(batch.weight_BT)
        return (self.value_terms(policy, batch) * weight_BT).sum()
