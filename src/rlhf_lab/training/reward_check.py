"""Refuse rounds that nothing can be learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.training.round_metrics import reward_failure_text
from rlhf_lab.types.samples import Group


def require_groups(rollouts: RoundRollouts) -> None:
    """Raise RuntimeError if a round has no group with rewards."""
    if not rollouts.groups:
        raise RuntimeError(
            f"none of the {len(rollouts.unscored)} groups of a round could be scored, so there is "
            f"nothing to learn from: correct the reward{reward_failure_text(rollouts)}"
        )


def reward_complaint(groups: Sequence[Group]) -> str:
    """What is wrong with the first reward that is not finite; "" if all are."""
    for group in groups:
        for reward in group.rewards:
            if not math.isfinite(reward):
                return (
                    f"prompt {group.prompt.example.uid} (number {group.prompt.id}) got reward "
                    f"{reward}: no update was made; correct the reward"
                )
    return ""
