"""Rows of one round before it is trained on: which groups, in which order, with which log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlhf_lab.types.data import Batch
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Group


def shuffled(count: int, seed: int, round_: int, pass_: int) -> Tensor:
    """A random order of a round's groups, keyed by seed, round and pass."""
    key = stable_hash(seed, "minibatches", round_, pass_)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key & (2**63 - 1)))


def informative_first(groups: Sequence[Group], count: int) -> list[Group]:
    """`count` groups in their order: those whose rewards differ first, then tied ones."""
    is_tied = [min(group.rewards) == max(group.rewards) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda place: is_tied[place])[:count]
    return [groups[place] for place in sorted(chosen)]


def with_reference(batch: Batch, reference_BT: Tensor) -> Batch:
    """The batch with reference log-probs. Where the behaviour's are unknown (NaN, offline samples),
    the reference's stand in for them."""
    behavior_BT = batch.behavior_logp_BT
    behavior_BT = torch.where(behavior_BT.isnan(), reference_BT, behavior_BT)
    return replace(
        batch,
        reference_logp_BT=reference_BT,
        behavior_logp_BT=behavior_BT,
        proximal_logp_BT=behavior_BT,
        writer_logp_BT=behavior_BT,
    )


def count_tokens(batch: Batch) -> int:
    """Tokens of the rows that models read, without padding: prompts, responses, and what an
    environment wrote between their tokens."""
    return int(batch.prompt_mask_BS.sum() + batch.read_length_B.sum())
