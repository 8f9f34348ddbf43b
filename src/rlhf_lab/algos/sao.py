"""SAO: one sample a prompt, values, and no token outside an interval of ratios (arXiv:2607.07508).

Equation 1 leaves open whether a gradient flows through the weight. Here none does: the gradient of
a token is ratio * advantage, as in a public reproduction for slime.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import ratio_to_proximal
from rlhf_lab.algos.ppo import ActorCritic
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput


@dataclass(frozen=True)
class SAO(ActorCritic):
    """PPO's advantages and values; tokens weigh their ratio within an interval, and nothing
    outside, whatever the sign of their advantage."""

    name: str = limits.name("sao")
    lam_alpha: float = fields.lam_alpha(1.5)
    value_lam: float = fields.value_lam(1.0)
    clip_low: float = limits.share(
        0.3,
        about="Tokens of a ratio of 1 - clip_low or less are not trained on; 1 is no lower bound.",
        source="mathematics: arXiv:2607.07508, section 4.1; 0.8 for code",
    )
    clip_high: float = limits.number(
        5.0,
        above=0,
        max=1e9,
        about="Tokens of a ratio of 1 + clip_high or more are not trained on.",
        source="mathematics: arXiv:2607.07508, section 4.1; 3 for code",
    )

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Log-probs weighted by the ratio, through which no gradient flows, and the advantage."""
        ratio_BT = ratio_to_proximal(policy, batch).detach()
        inside_BT = (ratio_BT > 1 - self.clip_low) & (ratio_BT < 1 + self.clip_high)
        factor_BT = ratio_BT * inside_BT
        loss = -(factor_BT * batch.credit_BT * policy.logp_BT * batch.weight_BT).sum()
        return LossOutput(loss, clipped_BT=~inside_BT * batch.mask_BT)
