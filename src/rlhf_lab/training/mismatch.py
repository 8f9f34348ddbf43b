"""Whether generator and trainer find the same log-probs in a run's first samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.models.batching import collate
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine
from rlhf_lab.types.samples import Group

# Nats: ratios of 0.99 to 1.01. In half precision a single token says nothing: there the mean over
# all of them, several times what rounding makes of it.
LARGEST, MEAN_OF_HALVES = 0.01, 0.1


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
        limit = MEAN_OF_HALVES if self.is_half else LARGEST
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
