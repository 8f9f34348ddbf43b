"""Forward pass whose last layer is computed for the last columns alone: of a reward model the last
token, of a policy the response.

The last layer is half of a model of two layers, and most columns of a row belong to its prompt.
Rounding is not that of the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.devices import device_of
from rlhf_lab.models.forward import (
    TokenRows,
    in_rows,
    inputs,
    policy_columns,
    positions,
    token_rows,
)
from rlhf_lab.models.layer_stack import Stack, signed, stack_of, turned
from rlhf_lab.models.numerical_check import reads_as_single_rows
from rlhf_lab.types.data import Batch
from rlhf_lab.types.heartbeat import beat

# Called with a layer's number, keys and values, B heads L D each.
Keep = Callable[[int, Tensor, Tensor], None]


def last_columns(
    stack: Stack,
    token_BL: Tensor,
    mask_BL: Tensor,
    width: int,
    keep: Keep | None = None,
    picked: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The hidden states of the last `width` columns after all layers, BWE, before the norm.

    mask_BL: 0 on padding, which may stand on either side of a row's tokens. picked: rows and
    columns, N each and the columns among the last ones, of the states that are wanted, N1E.
    """
    hidden = stack.embed(token_BL)
    cos, sin = stack.rotary(hidden, positions(mask_BL))
    cos, sin = cos.unsqueeze(1), signed(sin).unsqueeze(1)
    length = token_BL.shape[1]
    # A pad looks at itself, so that no row of the softmax is empty.
    sees = torch.ones(length, length, dtype=torch.bool, device=token_BL.device)
    sees = sees.tril() & (mask_BL[:, None, None] > 0) | sees.diag().diag()
    for number, block in enumerate(stack.blocks):
        query, key, value = block.project(hidden)
        query, key = turned(query, cos, sin), turned(key, cos, sin)
        if keep is not None:
            keep(number, key, value)
        if number == len(stack.blocks) - 1:
            query, sees, hidden = query[:, :, -width:], sees[:, :, -width:], hidden[:, -width:]
        if query.device.type != "cpu":
            key, value = per_query(key, query), per_query(value, query)
        found = scaled_dot_product_attention(
            query, key, value, sees, scale=stack.scaling, enable_gqa=True
        )
        attended = found.transpose(1, 2).flatten(2)
        if number == len(stack.blocks) - 1 and picked is not None:
            hidden, attended = hidden[picked].unsqueeze(1), attended[picked].unsqueeze(1)
        hidden = block.merge(hidden, attended)
    return hidden


def per_query(heads: Tensor, query: Tensor) -> Tensor:
    """Keys or values once for each head of queries. No kernel of a GPU takes both a mask and fewer
    keys than queries in float32: torch would store the scores of all pairs, three times."""
    return heads.repeat_interleave(query.shape[1] // heads.shape[1], dim=1)


def last_column_stack(model: Any) -> Stack | None:
    """The model taken apart, if that is how its last columns are to be read; else None.

    That is on a CPU, whose rows are read with stored masks, in float32, for a class that is known
    and computes the same on a small example.
    """
    if device_of(model).type != "cpu" or model.dtype is not torch.float32:
        return None
    stack = stack_of(model)
    if stack is None:
        return None

    def read(_: Any, rows: TokenRows) -> Tensor:
        return response_states(stack, rows)

    return stack if reads_as_single_rows(model.base_model, read) else None


def response_states(stack: Stack, rows: TokenRows) -> Tensor:
    """The hidden states before the N response tokens, NE, row after row.

    Rows are moved to the right edge, so that rows of one length have no padding, wherever their
    responses begin.
    """
    is_text_BW = torch.cat([rows.prompt_mask_BS, rows.mask_BT], dim=1) > 0
    token_BW = torch.cat([rows.prompt_BS, rows.response_BT], dim=1)
    length_B = (rows.mask_BT > 0).sum(dim=1)
    # With the state before the first token, of padding where a row has no prompt.
    width = int(length_B.max()) + 1
    longest = max(width, int(is_text_BW.sum(dim=1).max()))
    order_BL = is_text_BW.long().argsort(dim=1, stable=True)[:, -longest:]
    token_BL, mask_BL = token_BW.gather(1, order_BL), is_text_BW.gather(1, order_BL).long()
    row_N, index_N = rows.mask_BT.nonzero(as_tuple=True)
    picked = row_N, width - length_B[row_N] + index_N - 1
    return stack.norm(last_columns(stack, token_BL, mask_BL, width, picked=picked).squeeze(1))


def response_logps(
    model: Any, stack: Stack | None, batch: Batch, temperatures: Sequence[float]
) -> list[Tensor]:
    """Log-probs of the response tokens, BT, at each temperature, from logits that are computed
    once; 0 on padding. stack: of `last_column_stack`; None: by the model's own forward."""
    rows = token_rows(batch)
    is_token_BT = rows.mask_BT > 0
    if stack is None:
        output = model(**inputs(rows), logits_to_keep=rows.response_BT.shape[1] + 1)
        logits_NV = output.logits[:, :-1][is_token_BT].float()
    else:
        logits_NV = stack.head(response_states(stack, rows)).float()
    token_N1 = rows.response_BT[is_token_BT].unsqueeze(1)
    logps = (torch.log_softmax(logits_NV / t, dim=-1) for t in temperatures)
    found = (in_rows(logp_NV.gather(1, token_N1).squeeze(1), rows.mask_BT) for logp_NV in logps)
    return [policy_columns(logp_BU, batch) for logp_BU in found]


def last_token_outputs(stack: Stack, rows: Sequence[Sequence[int]], size: int) -> Tensor:
    """What the head finds at the last token of each row, BH, `size` rows of like length at a
    time."""
    by_length = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
    found = []
    for start in range(0, len(rows), size):
        chosen = [rows[number] for number in by_length[start : start + size]]
        hidden_B1E = last_columns(stack, *pad_left(chosen, 0), width=1)
        found.append(stack.head(stack.norm(hidden_B1E[:, 0])))
        beat()
    output_BH: Tensor = torch.cat(found)[torch.tensor(by_length).argsort()]
    return output_BH
