"""Log-probs compared: of generator and trainer in a run's first samples, and of the versions around
a round's updates; and how many weights differ between two versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlhf_lab.algos.off_policy import gaps
from rlhf_lab.models.batching import collate
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.training.batch_builder import under_generating_versions
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.samples import Group, lag_in_rounds, lag_in_updates

# Nats: ratios of 0.99 to 1.01. In half precision a single token says nothing: there the mean over
# all of them, several times what rounding makes of it.
LARGEST_MISMATCH, MEAN_OF_HALF_PRECISION = 0.01, 0.1


@dataclass(frozen=True)
class MismatchLimit:
    """How far the two may be apart under the same weights.

    is_half: whether they compute in half precision. temperature: of sampling; one below 1 magnifies
    rounding of logits.
    """

    is_half: bool
    temperature: float

    def check(self, engine: Engine, groups: Sequence[Group], weights: Weights, pad_id: int) -> None:
        """Raise UserError where the longest and the shortest of the groups that these weights wrote
        have other log-probs in the trainer's passes."""
        written = [group for group in groups if is_written_by(group, weights.version)]
        if not written:
            return
        by_length = sorted(written, key=num_tokens)
        batch = collate([by_length[-1], *by_length[:-1][:1]], pad_id)
        logp_BT = engine.logp(batch, weights)
        off_N = (logp_BT - batch.behavior_logp_BT).abs()[batch.mask_BT > 0]
        limit = MEAN_OF_HALF_PRECISION if self.is_half else LARGEST_MISMATCH
        limit /= min(1.0, self.temperature)
        found = float(off_N.mean() if self.is_half else off_N.max())
        if not found <= limit:
            which = "in the mean" if self.is_half else "at a token"
            raise UserError(
                f"generator and trainer are {found:.3g} nats apart {which} in the first samples, "
                f"under the same weights and with numbers of the same precision, where rounding "
                f"makes less than {limit:.2g} (gap/mismatch): training would learn from the "
                "difference. One of them reads this model's rows in a way that it does not have: "
                "pass engine.share_prompts=false, or generator.decode=transformers, or shorter "
                "rows (task.max_prompt_tokens, generator.max_new_tokens) where attention or "
                "positions change with length, or a model of another family"
            )


def is_written_by(group: Group, version: int) -> bool:
    """Whether one version wrote all tokens of a group."""
    return all(sample.version == version and not sample.versions for sample in group.samples)


def num_tokens(group: Group) -> int:
    """Tokens of the prompt and of the longest sample."""
    return len(group.prompt.tokens) + max(len(sample.all_tokens) for sample in group.samples)


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
    writer_BT, _ = under_generating_versions(engine.logp, pipeline.weights_of, groups, batch, known)
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
