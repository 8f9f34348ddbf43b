"""MDPO: ratio-weighted advantages less KL to the last policy (arXiv:2005.09814, section 4.1).

Each round takes several gradient steps on the objective, as in its authors' code
(mdpo_on/mdpo.py): mean of ratio * advantage, less KL(policy || policy of the round) / t_k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlhf_lab.algos.common import ratio_to_proximal
from rlhf_lab.algos.ppo import ActorCritic
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput


@dataclass(frozen=True)
class MDPO(ActorCritic):
    """Mirror descent: PPO with a penalty on KL to each round's policy in place of the clip.
    `run.passes` and `run.updates_per_round` are the steps of a round."""

    name: str = limits.name("mdpo")
    step_size: float = limits.number(
        1.0,
        above=0,
        max=1e6,
        about="Step size t_k of the first round: the loss has KL(policy || round's policy) / t_k.",
        source="arXiv:2005.09814, section 4.1",
    )
    anneal: bool = limits.option(
        True,
        about="Whether t_k falls linearly over the run: step_size * (1 - round / rounds).",
        source="arXiv:2005.09814",
    )

    def at_round(self, round_: int, num_rounds: int) -> MDPO:
        """The algorithm with the step size of a round, counted from 0."""
        if not self.anneal:
            return self
        return replace(self, step_size=self.step_size * (1 - round_ / num_rounds), anneal=False)

    def surrogate(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """-(ratio * advantage - KL / t_k) per token. On samples of the proximal policy the terms
        ratio * log ratio - (ratio - 1) have the mean KL(policy || proximal), and none is negative.
        """
        ratio_BT = ratio_to_proximal(policy, batch)
        kl_BT = ratio_BT * (policy.logp_BT - batch.proximal_logp_BT) - (ratio_BT - 1)
        kl = (kl_BT * batch.weight_BT).sum()
        gain = (ratio_BT * batch.credit_BT * batch.weight_BT).sum()
        return LossOutput(kl / self.step_size - gain, {"mdpo/kl_to_round": kl.detach()})
