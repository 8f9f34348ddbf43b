"""The probe: a few groups of a round, read again by the versions that are being compared, and how
many weights differ between two versions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlhf_lab.algos.off_policy import gaps
from rlhf_lab.models.batching import collate
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.training.writers import read_by_writers
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.samples import Group, lag_in_rounds, lag_in_updates


def measure_gaps(
    engine: Engine,
    pipeline: Pipeline,
    groups: Sequence[Group],
    start: Weights,
    end: Weights,
    pad_id: int,
    updates_per_round: int,
) -> Metrics:
    """The three gaps of `off_policy.gaps` on these groups, by log-probs of the trainer's model, and
    by their lag in updates before the first one of the round.

    start, end: the weights before and after the round's updates. Each token is also read by the
    version that wrote it, which the pipeline still has. No groups, no metrics.
    """
    if not groups:
        return {}
    batch = collate(groups, pad_id)
    start_BT = engine.logp(batch, start)
    known = {start.version: start_BT}
    writer_BT, _ = read_by_writers(engine.logp, pipeline.weights_of, groups, batch, known)
    end_BT = engine.logp(batch, end)
    lag_B = lag_in_updates(lag_in_rounds(start.version, batch.version_B), updates_per_round)
    return gaps(batch, writer_BT, start_BT, end_BT, lag_B)


# A weight has changed if its values as bfloat16 differ by more (arXiv:2505.11711).
TOLERANCE = 1e-5


def changed_shares(before: Weights, after: Weights) -> Metrics:
    """Shares of the policy's weights that differ between two versions: in any bit, and after both
    are rounded to bfloat16 by more than TOLERANCE, as arXiv:2505.11711 counts them."""
    total = exact = rounded = 0
    for name, new in after.state.items():
        old = before.state[name]
        difference = new.to(torch.bfloat16).float() - old.to(torch.bfloat16).float()
        total += new.numel()
        exact += int((new != old).sum())
        rounded += int((difference.abs() > TOLERANCE).sum())
    return {
        "update/changed_share": exact / total,
        "update/changed_share_bfloat16": rounded / total,
    }
