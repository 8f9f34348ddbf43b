"""On-policy distillation, and the KL over several tokens that it may learn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.algos import fields
from rlhf_lab.algos.common import keep_all, token_surrogate
from rlhf_lab.algos.options import AlgorithmOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Batch, Credit, LossOutput, Needs, Objective, PolicyOutput, Reduction

if TYPE_CHECKING:
    from torch import Tensor


class Direction(StrEnum):
    """sampled: KL(policy || teacher) by the sampled token alone, as an advantage. reverse: the same
    by its sum over tokens, each weighted by the policy. forward: KL(teacher || policy), each token
    weighted by the teacher."""

    sampled = "sampled"
    reverse = "reverse"
    forward = "forward"


def kl_over_tokens(policy: PolicyOutput, direction: Direction) -> Tensor:
    """forward: sum of q (log q - log p); reverse: sum of p (log p - log q), BT, where q is the
    teacher and p the policy. The policy has a gradient through every term."""
    own_BTK, teacher_BTK = policy.top_logp_BTK, policy.reference_top_logp_BTK
    if own_BTK is None or teacher_BTK is None:
        raise ValueError("log-probs of the teacher's tokens are needed, and the engine has none")
    if direction is Direction.forward:
        return (teacher_BTK.exp() * (teacher_BTK - own_BTK)).sum(dim=2)
    return (own_BTK.exp() * (own_BTK - teacher_BTK)).sum(dim=2)


class Signal(StrEnum):
    """Whose log-probs the teacher's are compared with: those of the policy that wrote the token, or
    of the policy that is trained, as it is at each update."""

    behavior = "behavior"
    policy = "policy"


@dataclass(frozen=True)
class Distill(AlgorithmOptions):
    """On-policy distillation by reverse or forward KL to a teacher (arXiv:2606.24143 and its code).

    The teacher takes the reference's place: `batch.reference_logp_BT` are its log-probs.

    On-policy distillation: each sampled token is credited with log(teacher / policy), the
    negative reverse KL to the teacher, under PPO's clip, or the KL over several tokens is the loss.
    Rewards are logged and not used."""

    name: str = limits.name("distill")
    teacher: str = limits.option(
        "",
        about=(
            "Teacher: a hub name, with @REVISION if wanted, or a folder of save_pretrained, "
            "of the policy's vocabulary. It takes the place of the reference."
        ),
    )
    kl: Direction = limits.option(
        Direction.sampled,
        about=(
            "Which KL to the teacher: reverse by the sampled token alone (sampled), or a sum "
            "over tokens with the policy's probabilities (reverse) or the teacher's "
            "(forward)."
        ),
        source="arXiv:2606.24143",
    )
    top_k: int = limits.count(
        0,
        min=0,
        about=(
            "Tokens over which kl=reverse and kl=forward sum, the teacher's most likely ones "
            "before each token; 0 is the whole vocabulary."
        ),
        source="arXiv:2606.24143",
    )
    signal: Signal = limits.option(
        Signal.behavior,
        about=(
            "Whose log-probs are subtracted from the teacher's with kl=sampled: of the policy that "
            "wrote the token (behavior), or of the policy at each update (policy), which stale "
            "samples need."
        ),
        source="policy: arXiv:2606.24143, recomputed reverse-KL signal",
    )
    clip: float = fields.clip(0.2)
    reduction: Reduction = fields.reduction(Reduction.token_mean)

    @property
    def objective(self) -> Objective:
        is_sampled = self.kl is Direction.sampled
        return Objective.token_ratio if is_sampled else Objective.likelihood

    @property
    def needs(self) -> Needs:
        is_sampled = self.kl is Direction.sampled
        top = None if is_sampled else self.top_k
        return Needs(teacher=self.teacher, top_tokens=top, reference=is_sampled)

    def credit(self, reward_PG: Tensor, batch: Batch) -> Credit:
        """log teacher - log behaviour of each token, without later ones; 1 where the loss has its
        own signal, which it multiplies."""
        if self.kl is not Direction.sampled or self.signal is Signal.policy:
            return Credit(batch.mask_BT, keep_B=keep_all(reward_PG))
        log_ratio_BT = (batch.reference_logp_BT - batch.behavior_logp_BT) * batch.mask_BT
        return Credit(log_ratio_BT, keep_B=keep_all(reward_PG))

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        """The KL over tokens, or the clipped surrogate, through whose signal no gradient flows."""
        if self.kl is not Direction.sampled:
            kl_BT = kl_over_tokens(policy, self.kl)
            return LossOutput((kl_BT * batch.credit_BT * batch.weight_BT).sum())
        if self.signal is Signal.policy:
            log_ratio_BT = batch.reference_logp_BT - policy.logp_BT.detach()
            batch = replace(batch, credit_BT=batch.credit_BT * log_ratio_BT)
        return token_surrogate(policy, batch, self.clip, self.clip)
