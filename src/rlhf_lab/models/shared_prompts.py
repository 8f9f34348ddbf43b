"""Prompt sharing: a group as one row, its prompt once, then its responses.

An attention mask keeps each response from seeing the others. The prompt is computed once per group,
forward and backward; results equal those of separate rows up to rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_left, pad_right
from rlhf_lab.models.block_attention import BLOCK, FIRST_RESPONSE, NAME, PROMPT, may_see
from rlhf_lab.models.borders import borders
from rlhf_lab.models.forward import TokenRows, positions
from rlhf_lab.models.numerical_check import LONGEST, problem_of

Rows = Sequence[Sequence[int]]
# Attention that takes any mask. Flash attention knows causal ones only.
MASKABLE = ("sdpa", "eager")
# What FlexAttention takes for a pair, where flash attention takes 1: by its authors 10% to 15% more
# (arXiv:2412.05496).
BLOCK_COST = 1.2
# Three blocks of a row of blocks are seen in part (at the ends of prompt and response, and on the
# diagonal), half of each in vain.
EDGES = 1.5


class Packed(NamedTuple):
    """Arguments of a model for P packed rows of L tokens.

    segment_PL: whose token each is (segments.py). row_N, column_N: where the hidden state before
    each of the N response tokens is, in the order of the batch.
    """

    token_PL: Tensor
    position_PL: Tensor
    segment_PL: Tensor
    row_N: Tensor
    column_N: Tensor


def common_prefix(rows: Rows) -> int:
    """The tokens that all rows begin with, but the last one of each."""
    shortest = min(map(len, rows)) - 1
    columns = zip(*rows, strict=False)
    return min(shortest, sum(1 for _ in itertools.takewhile(lambda c: len(set(c)) == 1, columns)))


def rows_with_prefix(rows_P: Sequence[Rows], prefix_P: Sequence[int]) -> TokenRows:
    """The rows of each group, whose first tokens are their prompt."""
    pairs = [
        (number, row[:prefix], row[prefix:])
        for number, (rows, prefix) in enumerate(zip(rows_P, prefix_P, strict=True))
        for row in rows
    ]
    prompt_BS, prompt_mask_BS = pad_left([prompt for _, prompt, _ in pairs], 0)
    return TokenRows(
        prompt_BS,
        prompt_mask_BS,
        pad_right([rest for *_, rest in pairs], torch.long),
        pad_right([[1.0] * len(rest) for *_, rest in pairs], torch.float32),
        torch.tensor([number for number, *_ in pairs]),
    )


def packed(token_rows: TokenRows, multiple: int = 1) -> Packed:
    """Pack the consecutive rows of each group into one row; L is a multiple of `multiple`."""
    row_B = packed_row_of(token_rows)
    is_first_B = row_B.diff(prepend=row_B.new_full((1,), -1)) > 0
    length_B = token_rows.mask_BT.sum(dim=1).long()
    before_B = length_B.cumsum(dim=0) - length_B
    start_B = before_B - before_B[is_first_B][row_B]
    prompt_PS, mask_PS = token_rows.prompt_BS[is_first_B], token_rows.prompt_mask_BS[is_first_B]
    width = prompt_PS.shape[1]
    number_N, index_N = token_rows.mask_BT.nonzero(as_tuple=True)
    row_N, column_N = row_B[number_N], width + start_B[number_N] + index_N
    room = int((start_B + length_B).max())
    rest = prompt_PS.new_zeros(len(prompt_PS), room + -(width + room) % multiple)
    token_PL = torch.cat([prompt_PS, rest], dim=1)
    token_PL[row_N, column_N] = token_rows.response_BT[number_N, index_N]
    position_PL = torch.cat([positions(mask_PS), rest], dim=1)
    position_PL[row_N, column_N] = mask_PS.sum(dim=1)[row_N] + index_N
    segment_PL = torch.cat([mask_PS * PROMPT, rest], dim=1)
    segment_PL[row_N, column_N] = FIRST_RESPONSE + number_N
    before_N = torch.where(index_N == 0, width - 1, column_N - 1)
    return Packed(token_PL, position_PL, segment_PL, row_N, before_N)


def packed_row_of(token_rows: TokenRows) -> Tensor:
    """Index of each row's packed row, B."""
    return (token_rows.group_B.diff(prepend=token_rows.group_B[:1]) != 0).cumsum(dim=0)


def visible(segment_PL: Tensor) -> Tensor:
    """The attention mask of all pairs, P1LL: whether a token (third dimension) attends to another
    (fourth)."""
    place_L = torch.arange(segment_PL.shape[1], device=segment_PL.device)
    mine_PL1, theirs_P1L = segment_PL.unsqueeze(2), segment_PL.unsqueeze(1)
    return may_see(mine_PL1, theirs_P1L, place_L.unsqueeze(1), place_L).unsqueeze(1)


def packed_states(body: Any, token_rows: TokenRows, by_blocks: bool = False) -> Tensor:
    """The hidden states before the response tokens, ND, each prompt computed once.

    by_blocks: the mask is one of blocks, for models that take it (block_attention.use_blocks), and
    not of all pairs.
    """
    pack = packed(token_rows, BLOCK if by_blocks else 1)
    return states_of(body, pack, by_blocks)[pack.row_N, pack.column_N]


def packed_last_states(body: Any, token_rows: TokenRows, by_blocks: bool = False) -> Tensor:
    """The hidden states at the last response tokens, BD, each prompt computed once."""
    pack = packed(token_rows, BLOCK if by_blocks else 1)
    row_B = packed_row_of(token_rows)
    own_B1 = FIRST_RESPONSE + torch.arange(len(row_B), device=row_B.device).unsqueeze(1)
    column_L = torch.arange(pack.segment_PL.shape[1], device=row_B.device)
    last_B = ((pack.segment_PL[row_B] == own_B1) * column_L).argmax(dim=1)
    return states_of(body, pack, by_blocks)[row_B, last_B]


def states_of(body: Any, pack: Packed, by_blocks: bool) -> Tensor:
    """The hidden states of all packed tokens, PLD."""
    hidden_PLD: Tensor = body(
        input_ids=pack.token_PL,
        attention_mask=blocks_of(pack) if by_blocks else dense_mask(body, pack),
        position_ids=pack.position_PL,
        use_cache=False,
    ).last_hidden_state
    return hidden_PLD


def blocks_of(pack: Packed) -> Any:
    """The mask of blocks."""
    from rlhf_lab.models.block_attention import block_mask

    return block_mask(pack.segment_PL)


def dense_mask(body: Any, pack: Packed) -> Tensor:
    """The mask of all pairs, P1LL, as the model's attention takes it."""
    mask = visible(pack.segment_PL)
    if body.config._attn_implementation != "eager":
        return mask
    # Eager attention adds its mask to the scores.
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, lowest)


def packing_is_cheaper(token_rows: TokenRows, hidden_size: int, by_blocks: bool = False) -> bool:
    """Whether packing costs less than separate rows: fewer tokens, but more pairs in attention.

    A layer takes about 24 h^2 operations per token and 4 h per pair (h: hidden_size), padding
    included; a cost is operations / 4 h. by_blocks: of kernels without stored masks, which compute
    the pairs that are seen. A kernel that is given a mask computes all of a row.
    """
    rows = len(token_rows.mask_BT)
    row_B = packed_row_of(token_rows)
    num_groups = int(row_B[-1]) + 1
    if num_groups == rows:
        return False
    length_B = token_rows.mask_BT.sum(dim=1)
    length_P = torch.zeros(num_groups, device=row_B.device).index_add(0, row_B, length_B)
    prompt_width = token_rows.prompt_BS.shape[1]
    packed_width = prompt_width + int(length_P.max())
    if not by_blocks:
        width = prompt_width + token_rows.response_BT.shape[1]
        apart, together = rows * width**2, num_groups * packed_width**2
    else:
        prompt_B = token_rows.prompt_mask_BS.sum(dim=1)
        width = int((prompt_B + length_B).max())
        packed_width += -packed_width % BLOCK
        # Causal kernels leave out the half of the pairs above the diagonal.
        apart = rows * width**2 // 2
        prompt_P = prompt_B[row_B.diff(prepend=row_B.new_full((1,), -1)) > 0]
        # Tokens of responses attend to their prompts and to themselves.
        pairs = float((length_B * (prompt_B + length_B / 2)).sum())
        pairs += float((prompt_P**2).sum()) / 2
        edges = EDGES * BLOCK * num_groups * packed_width
        together = int(BLOCK_COST * (pairs + edges))
    weight = 6 * hidden_size
    return num_groups * packed_width * weight + together < rows * width * weight + apart


def is_packable(body: Any, by_blocks: bool = False) -> bool:
    """Whether a model computes the same for packed rows as for each row alone. by_blocks: with
    masks of blocks (`packed_states`)."""
    return packing_problem(body, by_blocks) == ""


def packing_problem(body: Any, by_blocks: bool = False) -> str:
    """Why the rows of a model are not packed, in a line; "" if they are.

    Columns of a packed row are not positions, so attention that does not reach all columns would
    count wrongly: a border that the self-test cannot reach excludes the model.
    """
    attention = body.config._attn_implementation
    if attention not in ((NAME,) if by_blocks else MASKABLE):
        return f"its attention ({attention}) does not take a mask of all pairs"
    if far := [border for border in borders(body.config) if border > LONGEST - 2]:
        return f"its attention changes at {far[0]} tokens, by its config"
    return problem_of(body, functools.partial(packed_states, by_blocks=by_blocks))
