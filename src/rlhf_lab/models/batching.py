"""From groups of samples to tensors: groups -> Batch -> minibatches -> micro-batches.

A minibatch is the rows of one optimizer update; its micro-batches are the rows of one forward and
backward pass. Token weights are computed once per minibatch, so losses of micro-batches add up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.types.data import Batch, Credit, Reduction
from rlhf_lab.types.samples import Group, Steps


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

    The proximal log-probs are those of the behaviour; reference, values, credit and weight are 0.
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
        value_BT=torch.zeros_like(mask_BT),
        credit_BT=torch.zeros_like(mask_BT),
        target_BT=torch.zeros_like(mask_BT),
        step_reward_BT=step_reward_BT,
        weight_BT=torch.zeros_like(mask_BT),
        group_B=torch.tensor([index for index, _, _ in rows]),
        version_B=torch.tensor([sample.version for _, _, sample in rows]),
        max_response_B=torch.full((len(rows),), limit or mask_BT.shape[1]),
        has_reference_B=torch.ones(len(rows), dtype=torch.bool),
    )


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


@dataclass(frozen=True)
class Microbatch:
    """Some rows of a batch, without columns of padding, and their row numbers in it."""

    batch: Batch
    index_B: Tensor

    @property
    def padded_tokens(self) -> int:
        """Tokens that a model reads, padding included."""
        width = self.batch.prompt_BS.shape[1] + self.batch.response_BT.shape[1]
        return len(self.batch) * width


def micro_batches(batch: Batch, max_rows: int) -> Iterator[Batch]:
    """Consecutive whole groups of at most `max_rows` rows (or one group, if it is larger)."""
    for part in split(batch, max_rows):
        yield part.batch


def split(batch: Batch, max_rows: int, max_tokens: int = 0) -> Iterator[Microbatch]:
    """Micro-batches of whole groups, at most `max_rows` rows each (or one group, if larger).

    max_tokens 0: groups in order. Otherwise groups of similar length together, the longest first,
    at most `max_tokens` padded tokens each (or one group). Token weights stay those of the whole
    batch, so the losses of the micro-batches add up to its loss.
    """
    if max_tokens:
        yield from bucketed(batch, max_rows, max_tokens)
        return
    start = 0
    end = 0
    for _, boundary in group_bounds(batch):
        if boundary - start > max_rows and end > start:
            yield Microbatch(trim(batch, start, end), torch.arange(start, end))
            start = end
        end = boundary
    if end > start:
        yield Microbatch(trim(batch, start, end), torch.arange(start, end))


def group_bounds(batch: Batch) -> list[tuple[int, int]]:
    """First row of every group, and the row after its last."""
    edges = [0, *(torch.where(batch.group_B.diff() != 0)[0] + 1).tolist(), len(batch)]
    return list(itertools.pairwise(edges)) if len(batch) else []


def bucketed(batch: Batch, max_rows: int, max_tokens: int) -> Iterator[Microbatch]:
    """Groups of similar length together, the longest first, so lack of memory shows at once."""
    prompt_B, response_B = batch.prompt_mask_BS.sum(dim=1), batch.mask_BT.sum(dim=1)
    spans = group_bounds(batch)
    sizes = [(int(prompt_B[a:b].max()), int(response_B[a:b].max()), b - a) for a, b in spans]
    order = sorted(range(len(spans)), key=lambda group: (-sum(sizes[group][:2]), group))
    chosen: list[int] = []
    size = (0, 0, 0)
    for group in order:
        prompt, response, rows = sizes[group]
        grown = (max(size[0], prompt), max(size[1], response), size[2] + rows)
        is_full = grown[2] > max_rows or (grown[0] + grown[1]) * grown[2] > max_tokens
        if chosen and is_full:
            yield take_groups(batch, [spans[member] for member in chosen])
            chosen, grown = [], (prompt, response, rows)
        chosen.append(group)
        size = grown
    if chosen:
        yield take_groups(batch, [spans[member] for member in chosen])


def take_groups(batch: Batch, spans: Sequence[tuple[int, int]]) -> Microbatch:
    """Some groups of a batch as one micro-batch, in the given order."""
    index_B = torch.cat([torch.arange(start, end) for start, end in spans])
    return Microbatch(trim(batch.rows(index_B), 0, len(index_B)), index_B)


def trim(batch: Batch, start: int, end: int) -> Batch:
    """Rows start..end, without the columns in which all of them are padding."""
    part = {name: tensor[start:end] for name, tensor in vars(batch).items()}
    first = int(part["prompt_mask_BS"].any(dim=0).float().argmax())
    last = int(part["mask_BT"].sum(dim=1).max())
    for name, tensor in part.items():
        if name.endswith("_BS"):
            part[name] = tensor[:, first:]
        elif name.endswith("_BT"):
            part[name] = tensor[:, :last]
    return Batch(**part)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device."""
    return Batch(**{name: tensor.to(device) for name, tensor in vars(batch).items()})
