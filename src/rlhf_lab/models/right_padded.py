"""Rows without an attention mask: each prompt at the left edge, its response behind it.

Padding lies behind every token, where causal attention cannot see it. So the flash kernels, which
take no mask, read such rows, and a row is the same whatever the padding around it, but for the
order of sums in products of matrices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.forward import TokenRows
from rlhf_lab.models.numerical_check import reads_as_single_rows


def stores_no_masks(device: torch.device) -> bool:
    """Whether passes on a device are made without stored masks: on GPUs, whose fast kernels take
    none. On CPUs, rows keep their masks, and runs their bits."""
    return device.type == "cuda"


class RightPaddedRows(NamedTuple):
    """B rows of L tokens, padded on the right alone. row_N, column_N: where the hidden state before
    each of the N response tokens is, in the order of the batch."""

    token_BL: Tensor
    row_N: Tensor
    column_N: Tensor


def has_prompts(token_rows: TokenRows) -> bool:
    """Whether every row has a prompt, as `right_padded` needs it. Where the SFT loss counts all
    tokens, that of most rows is empty, and their first token follows a column of padding."""
    return bool(token_rows.prompt_mask_BS[:, -1].all())


def right_padded(token_rows: TokenRows) -> RightPaddedRows:
    """The rows of a batch, none with an empty prompt, moved to the left edge; L is the length of
    the longest."""
    is_text_BW = torch.cat([token_rows.prompt_mask_BS, token_rows.mask_BT], dim=1) > 0
    token_BW = torch.cat([token_rows.prompt_BS, token_rows.response_BT], dim=1)
    order_BW = is_text_BW.logical_not().long().argsort(dim=1, stable=True)
    longest = int(is_text_BW.sum(dim=1).max())
    token_BL = token_BW.gather(1, order_BW[:, :longest])
    row_N, index_N = token_rows.mask_BT.nonzero(as_tuple=True)
    column_N = token_rows.prompt_mask_BS.sum(dim=1)[row_N] + index_N - 1
    return RightPaddedRows(token_BL, row_N, column_N)


def right_padded_inputs(token_BL: Tensor) -> dict[str, Any]:
    """Arguments of a transformers model for rows that are padded on the right alone.

    Positions that count up by one show transformers that there is nothing to mask; of padding they
    mean nothing.
    """
    position_L = torch.arange(token_BL.shape[1], device=token_BL.device)
    return {
        "input_ids": token_BL,
        "attention_mask": None,
        "position_ids": position_L.expand_as(token_BL),
        "use_cache": False,
    }


def right_padded_states(body: Any, token_rows: TokenRows) -> Tensor:
    """The hidden states before the response tokens, ND, of rows without a mask."""
    rows = right_padded(token_rows)
    hidden_BLD: Tensor = body(**right_padded_inputs(rows.token_BL)).last_hidden_state
    return hidden_BLD[rows.row_N, rows.column_N]


def is_causal(config: Any) -> bool:
    """Whether a model's tokens see earlier ones alone, by its config."""
    return getattr(config, "is_causal", True) and not getattr(config, "is_encoder_decoder", False)


def takes_right_padded(body: Any) -> bool:
    """Whether a model computes the same for rows without a mask."""
    return is_causal(body.config) and reads_as_single_rows(body, right_padded_states)
