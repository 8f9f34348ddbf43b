"""Prompt sharing: a group as one row, its prompt once, then its responses.

An attention mask keeps each response from seeing the others. The prompt is computed once per group,
forward and backward; results equal those of separate rows up to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.forward import Texts, attends_to_all, before_tokens, inputs, positions

# Attention that takes any mask. Flash attention knows causal ones only.
MASKABLE = ("sdpa", "eager")
PADDING, PROMPT, FIRST_RESPONSE = 0, 1, 2


class Packed(NamedTuple):
    """Arguments of a model for P packed rows of L tokens.

    may_see_P1LL: whether a token (third dimension) attends to another (fourth). row_N, column_N:
    where the hidden state before each of the N response tokens is, in the order of the batch.
    """

    token_PL: Tensor
    position_PL: Tensor
    may_see_P1LL: Tensor
    row_N: Tensor
    column_N: Tensor


def packed(texts: Texts) -> Packed:
    """Pack the consecutive rows of each group into one row."""
    row_B = rows_of(texts)
    is_first_B = row_B.diff(prepend=row_B.new_full((1,), -1)) > 0
    length_B = texts.mask_BT.sum(dim=1).long()
    before_B = length_B.cumsum(dim=0) - length_B
    start_B = before_B - before_B[is_first_B][row_B]
    prompt_PS, mask_PS = texts.prompt_BS[is_first_B], texts.prompt_mask_BS[is_first_B]
    width = prompt_PS.shape[1]
    number_N, index_N = texts.mask_BT.nonzero(as_tuple=True)
    row_N, column_N = row_B[number_N], width + start_B[number_N] + index_N
    rest = prompt_PS.new_zeros(len(prompt_PS), int((start_B + length_B).max()))
    token_PL = torch.cat([prompt_PS, rest], dim=1)
    token_PL[row_N, column_N] = texts.response_BT[number_N, index_N]
    position_PL = torch.cat([positions(mask_PS), rest], dim=1)
    position_PL[row_N, column_N] = mask_PS.sum(dim=1)[row_N] + index_N
    segment_PL = torch.cat([mask_PS * PROMPT, rest], dim=1)
    segment_PL[row_N, column_N] = FIRST_RESPONSE + number_N
    before_N = torch.where(index_N == 0, width - 1, column_N - 1)
    return Packed(token_PL, position_PL, visible(segment_PL), row_N, before_N)


def rows_of(texts: Texts) -> Tensor:
    """Index of each row's packed row, B."""
    return (texts.group_B.diff(prepend=texts.group_B[:1]) != 0).cumsum(dim=0)


def visible(segment_PL: Tensor) -> Tensor:
    """The attention mask, P1LL: each token sees earlier tokens of its prompt and own response.

    Padding sees itself, because a softmax over nothing is not a number.
    """
    length = segment_PL.shape[1]
    mine_PL1, theirs_P1L = segment_PL.unsqueeze(2), segment_PL.unsqueeze(1)
    is_earlier_LL = torch.ones(length, length, dtype=torch.bool, device=segment_PL.device).tril()
    is_own_PLL = (theirs_P1L == PROMPT) | (theirs_P1L == mine_PL1)
    may_see_PLL = is_own_PLL & (theirs_P1L != PADDING) & is_earlier_LL
    may_see_PLL |= torch.eye(length, dtype=torch.bool, device=segment_PL.device)
    return may_see_PLL.unsqueeze(1)


def packed_states(body: Any, texts: Texts) -> Tensor:
    """The hidden states before the response tokens, ND, each prompt computed once."""
    pack = packed(texts)
    mask: Tensor = pack.may_see_P1LL
    if body.config._attn_implementation == "eager":
        # Eager attention adds its mask to the scores.
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill(
            ~mask, torch.finfo(torch.float32).min
        )
    hidden_PLD = body(
        input_ids=pack.token_PL,
        attention_mask=mask,
        position_ids=pack.position_PL,
        use_cache=False,
    ).last_hidden_state
    hidden_ND: Tensor = hidden_PLD[pack.row_N, pack.column_N]
    return hidden_ND


def saves(texts: Texts, hidden_size: int) -> bool:
    """Whether packing costs less than separate rows: fewer tokens, but more pairs in attention.

    A layer takes about 24 h^2 operations per token and 4 h per pair (h: hidden_size), padding
    included.
    """
    rows, width = len(texts.mask_BT), texts.prompt_BS.shape[1] + texts.response_BT.shape[1]
    row_B = rows_of(texts)
    num_groups = int(row_B[-1]) + 1
    if num_groups == rows:
        return False
    length_P = torch.zeros(num_groups, device=row_B.device).index_add(
        0, row_B, texts.mask_BT.sum(dim=1)
    )
    packed_width = texts.prompt_BS.shape[1] + int(length_P.max())

    def cost(num_rows: int, length: int) -> int:
        return num_rows * length * (6 * hidden_size + length)

    return cost(num_groups, packed_width) < cost(rows, width)


def is_packable(body: Any) -> bool:
    """Whether a model computes the same for packed rows as for separate ones.

    Tested on two responses to a prompt of three tokens. Sliding windows, which are longer, are
    excluded by the config.
    """
    if not attends_to_all(body.config) or body.config._attn_implementation not in MASKABLE:
        return False
    parameter = next(body.parameters())
    small = example(parameter.device)
    with torch.no_grad():
        plain = before_tokens(body(**inputs(small)).last_hidden_state, small)[small.mask_BT > 0]
        together = packed_states(body, small)
    # Rounding of a whole pass, far below what another token's presence would change.
    tolerance = 64 * torch.finfo(plain.dtype).eps
    return bool((plain - together).abs().max() <= tolerance * plain.abs().max())


def example(device: torch.device) -> Texts:
    """Two responses to one prompt, the first of them with padding."""
    rows = {
        "prompt_BS": [[0, 1, 2], [0, 1, 2]],
        "prompt_mask_BS": [[0, 1, 1], [0, 1, 1]],
        "response_BT": [[3, 1, 0], [2, 4, 3]],
        "mask_BT": [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]],
        "group_B": [0, 0],
    }
    return Texts(**{name: torch.tensor(cells, device=device) for name, cells in rows.items()})
