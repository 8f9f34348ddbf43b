"""From groups of samples to tensors: groups -> Batch -> minibatches.

A minibatch is the rows of one optimizer update. Its token weights are computed once, so that the
losses of its micro-batches (models/microbatches.py) add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlhf_lab.types.data import Batch, Credit, Reduction, Writer
from rlhf_lab.types.samples import Group, Sample, Steps

TEXT_COLUMNS = ("text_BU", "writer_BU")


def pad_left(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Left-padded token ids, BS, and the mask of real tokens, BS."""
    width = max(len(row) for row in rows)
    tokens = torch.full((len(rows), width), fill, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        if row:
            tokens[index, width - len(row) :] = torch.tensor(row, dtype=torch.long)
            mask[index, width - len(row) :] = 1
    return tokens, mask


def pad_right(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """Numbers right-padded with zeros, BT."""
    width = max(len(row) for row in rows)
    out = torch.zeros((len(rows), width), dtype=dtype)
    for index, row in enumerate(rows):
        out[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return out


def collate(groups: Sequence[Group], pad_id: int, limit: int = 0) -> Batch:
    """All samples of some groups as one batch, in order.

    The log-probs of proximal policy and writer are those of the behaviour; reference, lags,
    values, credit, weight and gradients are 0.
    limit: the response limit in tokens; 0 takes the longest response of the batch.
    """
    rows = [
        (index, group, sample) for index, group in enumerate(groups) for sample in group.samples
    ]
    prompt_BS, prompt_mask_BS = pad_left([group.prompt.tokens for _, group, _ in rows], pad_id)
    response_BT = pad_right([sample.tokens for _, _, sample in rows], torch.long)
    mask_BT = pad_right([[1.0] * len(sample.tokens) for _, _, sample in rows], torch.float32)
    behavior_logp_BT = pad_right([sample.logps for _, _, sample in rows], torch.float32)
    step_reward_BT = torch.zeros_like(mask_BT)
    for row, steps in enumerate(steps for group in groups for steps in steps_of(group)):
        for token, reward in steps:
            step_reward_BT[row, token] += reward
    return Batch(
        prompt_BS=prompt_BS,
        prompt_mask_BS=prompt_mask_BS,
        response_BT=response_BT.masked_fill(mask_BT == 0, pad_id),
        mask_BT=mask_BT,
        behavior_logp_BT=behavior_logp_BT,
        proximal_logp_BT=behavior_logp_BT,
        reference_logp_BT=torch.zeros_like(mask_BT),
        writer_logp_BT=behavior_logp_BT,
        lag_BT=torch.zeros_like(mask_BT),
        entropy_BT=torch.zeros_like(mask_BT),
        value_BT=torch.zeros_like(mask_BT),
        credit_BT=torch.zeros_like(mask_BT),
        target_BT=torch.zeros_like(mask_BT),
        step_reward_BT=step_reward_BT,
        turn_BT=pad_right([turns_of(sample) for _, _, sample in rows], torch.long),
        weight_BT=torch.zeros_like(mask_BT),
        group_B=torch.tensor([index for index, _, _ in rows]),
        version_B=torch.tensor([sample.version for _, _, sample in rows]),
        max_response_B=torch.full((len(rows),), limit or mask_BT.shape[1]),
        has_reference_B=torch.ones(len(rows), dtype=torch.bool),
        log_ratio_gradient_B=torch.zeros(len(rows)),
        **text_columns([sample for _, _, sample in rows], pad_id),
    )


def turns_of(sample: Sample) -> list[int]:
    """The number of each token's turn."""
    lasts = [last for last, _ in sample.episode.turns] if sample.episode else []
    return [bisect_left(lasts, place) for place in range(len(sample.tokens))]


def text_columns(samples: Sequence[Sample], pad_id: int) -> dict[str, Tensor]:
    """`text_BU` and `writer_BU` of a batch; without columns if no environment wrote anything."""
    if not any(sample.episode and sample.episode.observed for sample in samples):
        return no_text(len(samples))
    whose = [
        [
            Writer.environment if is_observed else Writer.policy
            for is_observed, tokens in sample.pieces()
            for _ in tokens
        ]
        for sample in samples
    ]
    writer_BU = pad_right(whose, torch.long)
    text_BU = pad_right([sample.all_tokens for sample in samples], torch.long)
    return {"text_BU": text_BU.masked_fill(writer_BU == 0, pad_id), "writer_BU": writer_BU}


def no_text(num_rows: int) -> dict[str, Tensor]:
    """The same columns of rows that no environment wrote in."""
    return {name: torch.zeros(num_rows, 0, dtype=torch.long) for name in TEXT_COLUMNS}


def steps_of(group: Group) -> Sequence[Steps]:
    """The step rewards of each sample."""
    return group.step_rewards or [()] * len(group.samples)


def rewards_of(groups: Sequence[Group]) -> Tensor:
    """Proxy rewards, PG."""
    return torch.tensor([group.rewards for group in groups], dtype=torch.float32)


def token_weights(batch: Batch, reduction: Reduction) -> Tensor:
    """Weight of each token of an update, BT. Losses are weighted sums and divide by nothing."""
    length_B1 = batch.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    if reduction is Reduction.token_mean:
        return batch.mask_BT / length_B1.sum()
    if reduction is Reduction.prompt_mean:
        groups, group_B = torch.unique(batch.group_B, return_inverse=True)
        length_P = length_B1.new_zeros(len(groups)).index_add(0, group_B, length_B1.squeeze(1))
        return batch.mask_BT / length_P[group_B].unsqueeze(1) / len(groups)
    if reduction is Reduction.per_limit:
        length_B1 = batch.max_response_B.unsqueeze(1)
    return batch.mask_BT / length_B1 / len(batch)


def minibatches(
    batch: Batch,
    credit: Credit,
    reduction: Reduction,
    num: int,
    order_P: Tensor,
) -> Iterator[Batch]:
    """One pass over a round's rows: `num` minibatches of whole groups, in the given order.

    Rows that `credit` does not keep are left out. A minibatch may thus be smaller or empty, but it
    still counts as an update, so that lags in updates are exact.
    """
    target_BT = batch.target_BT if credit.target_BT is None else credit.target_BT
    batch = replace(batch, credit_BT=credit.value_BT, target_BT=target_BT)
    rows_of_group = [torch.where(batch.group_B == group)[0] for group in range(len(order_P))]
    none = torch.zeros(0, dtype=torch.long)
    for part in order_P.tensor_split(num):
        index_M = torch.cat([none, *(rows_of_group[group] for group in part.tolist())])
        rows = batch.rows(index_M[credit.keep_B[index_M]])
        yield replace(rows, weight_BT=token_weights(rows, reduction))


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device."""
    return Batch(**{name: tensor.to(device) for name, tensor in vars(batch).items()})
