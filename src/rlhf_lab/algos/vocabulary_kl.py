"""KL between teacher and policy before each token, summed over K tokens (arXiv:2606.24143 and its
code). Log-probs are of the whole vocabulary, so that fewer tokens than that leave out a tail."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rlhf_lab.types.data import PolicyOutput

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
