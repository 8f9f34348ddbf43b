"""REINFORCE with a baseline below the group's mean reward (arXiv:2506.20520)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlhf_lab.algos import fields
from rlhf_lab.algos.advantages import centred
from rlhf_lab.algos.common import credited_likelihood, keep_all, per_token
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction


# The fields are the options: algo.shift=-0.2 on the command line. Each has a range and a sentence,
# which `rlhf-lab explain algo.shift` shows. PG, BT: prompts x samples, rows x response tokens.
@dataclass(frozen=True)
class LowBaseline(AlgorithmOptions):
    """A baseline below the mean learns more from good samples than from bad ones, which is
    safer when they are stale."""

    name: str = limits.name("low_baseline")
    shift: float = limits.number(
        -0.1,
        min=-10,
        max=10,
        about="Added to the mean reward of the group to make the baseline; 0 is REINFORCE.",
        source="arXiv:2506.20520",
    )
    reduction: Reduction = fields.reduction(Reduction.sequence_mean)
    # What the loss is built on: `rlhf-lab train` refuses corrections that do not fit it.
    objective: ClassVar[Objective] = Objective.likelihood
    # What a run must provide: two samples of each prompt, since one has no mean to differ from. No
    # log-probs of the reference: reading what is not declared here is an error.
    needs: ClassVar[Needs] = Needs(group_size=2, scales_with_reward=True)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """Reward less the shifted mean of the group, the same for all tokens of a response."""
        return Credit(per_token(centred(reward_PG) - self.shift, batch), keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """Minus the log-likelihood of whole responses, weighted by credit."""
        return credited_likelihood(policy, batch)
