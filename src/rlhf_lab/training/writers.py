"""Log-probs of each token under the weight version that generated it, by the trainer's model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_right
from rlhf_lab.training.round_rows import count_tokens
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.samples import Group


def token_versions(groups: Sequence[Group]) -> Tensor:
    """The version that wrote each token, BT."""
    samples = [sample for group in groups for sample in group.samples]
    return pad_right([s.versions or [s.version] * len(s.tokens) for s in samples], torch.long)


def read_by_writers(
    read: Callable[[Batch, Weights], Tensor],
    weights_of: Callable[[int], Weights],
    groups: Sequence[Group],
    batch: Batch,
    known: Mapping[int, Tensor],
) -> tuple[Tensor, int]:
    """What is read of each token under the version that wrote it, BT, and the tokens read for it.

    read(batch, weights): a number of each token, such as its log-prob. batch: of these groups.
    known: numbers of all rows, by versions that were read already. Of the others, each reads the
    rows that it wrote tokens of.
    """
    version_BT = token_versions(groups)
    found_BT = torch.zeros_like(batch.mask_BT)
    tokens = 0
    for version in sorted(set(version_BT[batch.mask_BT > 0].tolist())):
        wrote_BT = (version_BT == version) & (batch.mask_BT > 0)
        if version in known:
            found_BT = torch.where(wrote_BT, known[version], found_BT)
            continue
        wrote_B = wrote_BT.any(dim=1)
        part = batch.rows(wrote_B)
        tokens += count_tokens(part)
        read_RT = read(part, weights_of(version))
        found_BT[wrote_B] = torch.where(wrote_BT[wrote_B], read_RT, found_BT[wrote_B])
    return found_BT, tokens
