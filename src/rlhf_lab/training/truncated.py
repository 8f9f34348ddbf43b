"""Samples that the response limit cut off, left out of the updates (run.mask_truncated)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rlhf_lab.types.data import Credit, Metrics
from rlhf_lab.types.samples import Finish, Group


def without_truncated(credit: Credit, groups: Sequence[Group]) -> tuple[Credit, Metrics]:
    """The credit with no truncated sample kept, and the share of samples that this leaves out.

    What others are compared with stays: a truncated sample counts in means and deviations of its
    group and of the round, as in overlong filtering (arXiv:2503.14476, section 3.4,
    and arXiv:2508.08221).
    """
    truncated_B = torch.tensor(
        [sample.finish is Finish.length for group in groups for sample in group.samples]
    )
    masked_B = credit.keep_B & truncated_B
    keep_B = credit.keep_B & ~truncated_B
    return replace(credit, keep_B=keep_B), {"sample/masked": float(masked_B.float().mean())}
