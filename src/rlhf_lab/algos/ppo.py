"""PPO with a value model (arXiv:1707.06347, eq. 7; set-up of N+, arXiv:2403.17031)."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.algos import fields
from rlhf_lab.algos.actor_critic import ActorCritic
from rlhf_lab.algos.common import token_surrogate
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput


@dataclass(frozen=True)
class PPO(ActorCritic):
    """PPO with advantages from a value model and a KL penalty in each token's reward."""

    name: str = limits.name("ppo")
    clip: float = fields.clip(0.2)

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Clipped surrogate per token."""
        return token_surrogate(policy, batch, self.clip, self.clip)
