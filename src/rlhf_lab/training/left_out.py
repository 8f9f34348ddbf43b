"""Rows of one round's batch that are left out of its updates (fork.without_rows)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rlhf_lab.types.data import Batch, Credit, Metrics
from rlhf_lab.types.errors import UserError


def without_rows(
    credit: Credit, batch: Batch, rows: Collection[int], round_: int
) -> tuple[Credit, Metrics]:
    """The credit with none of these rows kept, and how many rows and tokens that leaves out of
    those that the algorithm kept. They still count in the baselines of others.

    Raises UserError for a row that the batch does not have.
    """
    if beyond := [row for row in rows if row >= len(batch)]:
        raise UserError(
            f"fork.without_rows={min(beyond)}: the batch of round {round_} has rows 0 to "
            f"{len(batch) - 1}; choose among them"
        )
    keep_B = credit.keep_B.clone()
    keep_B[sorted(rows)] = False
    gone_B = credit.keep_B & ~keep_B
    tokens = int(batch.mask_BT.sum(dim=1)[gone_B].sum())
    measured = {"sample/without_rows": int(gone_B.sum()), "sample/without_tokens": tokens}
    return replace(credit, keep_B=keep_B), measured
