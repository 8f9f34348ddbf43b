"""Attention that takes masks of blocks: FlexAttention (arXiv:2412.05496) for packed rows.

transformers chooses attention by a name in the model's config. That below looks at the mask: a
BlockMask goes to FlexAttention, which skips blocks that no token attends to and stores no mask of
all pairs; everything else goes to torch's scaled_dot_product_attention.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    create_mask,
    flex_attention,
)
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward, use_gqa_in_sdpa
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from rlhf_lab.models.borders import borders

# The attention that looks at these (block_attention.py, imported only where it is used: it needs
# what transformers imports for models), by its name in a model's config.
NAME = "rlhf_lab"
# Tokens of a block's side. Rows of packed tokens are as wide as whole blocks: shorter ones would
# take FlexAttention's kernel for decoding, which knows fewer models.
BLOCK = 128
PADDING, PROMPT, FIRST_RESPONSE = 0, 1, 2
# The kernels multiply matrices of at least 16 columns; a head wider than 256 does not fit.
HEAD_SIZES = range(16, 257)
# One variant for each of: gradients or not, one row or many, fixed or variable length, and the
# types and heads of policy and value model. torch's default of 8 would end in unfused attention.
VARIANTS = 64


def may_see(segment: Tensor, other: Tensor, place: Tensor, other_place: Tensor) -> Tensor:
    """Whether a token of a segment, at a place of its row, attends to another: to earlier tokens of
    its prompt and its own response.

    Padding sees itself, because a softmax over nothing is not a number.
    """
    is_own = (other == PROMPT) | (other == segment)
    return is_own & (other != PADDING) & (other_place <= place) | (other_place == place)


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """What a layer's queries find, as rows, tokens, heads and numbers (see AttentionInterface)."""
    if isinstance(attention_mask, BlockMask):
        found = of_blocks(query, key, value, attention_mask, options.get("scaling"))
        return found.transpose(1, 2).contiguous(), None
    if use_gqa_in_sdpa(attention_mask, key, value) and needs_equal_heads(query, key):
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    result: tuple[Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, **options
    )
    return result


def needs_equal_heads(query: Tensor, key: Tensor) -> bool:
    """Whether queries that share keys would cost a matrix of all scores: on a GPU, of the kernels
    without one only those of half precision take fewer keys than queries (torch 2.13)."""
    is_grouped = query.shape[1] != key.shape[1]
    return is_grouped and query.device.type != "cpu" and pass_dtype(query) is torch.float32


def pass_dtype(tensor: Tensor) -> torch.dtype:
    """The type that torch's attention computes in: autocast changes that of its arguments."""
    kind = tensor.device.type
    is_cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else tensor.dtype


def of_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scaling: float | None
) -> Tensor:
    """Attention by a BlockMask, BHLD. Of a CPU, torch has no gradient of FlexAttention: there the
    mask of all pairs is made from it."""
    is_grouped = key.shape[1] != query.shape[1]
    # Rotated queries and keys are float32 under autocast, values are not.
    query, key, value = (part.to(pass_dtype(part)) for part in (query, key, value))
    if query.device.type != "cpu":
        found: Tensor = compiled()(
            query, key, value, block_mask=mask, scale=scaling, enable_gqa=is_grouped
        )
        return found
    rows, length = query.shape[0], query.shape[2]
    sees_P1LL = create_mask(mask.mask_mod, rows, 1, length, length, device="cpu")
    return scaled_dot_product_attention(
        query, key, value, sees_P1LL, scale=scaling, enable_gqa=is_grouped
    )


@functools.cache
def compiled() -> Callable[..., Tensor]:
    """FlexAttention as kernels; without compilation it stores the scores of all pairs."""
    # An argument that torch.compile's declared types leave out, and that came with torch 2.13.
    limit: dict[str, Any] = {"recompile_limit": VARIANTS}
    if not limit.keys() <= inspect.signature(torch.compile).parameters.keys():
        torch._dynamo.config.recompile_limit = limit.pop("recompile_limit")
    made: Callable[..., Tensor] = torch.compile(flex_attention, **limit)
    return made


def block_mask(segment_PL: Tensor) -> BlockMask:
    """The mask of packed rows (see segments.may_see), in blocks that some or all tokens see."""
    rows, length = segment_PL.shape

    def sees(row: Tensor, _head: Tensor, mine: Tensor, theirs: Tensor) -> Tensor:
        return may_see(segment_PL[row, mine], segment_PL[row, theirs], mine, theirs)

    return create_block_mask(
        sees, rows, None, length, length, device=segment_PL.device, BLOCK_SIZE=BLOCK
    )


def takes_blocks(body: Any, device: torch.device) -> bool:
    """Whether FlexAttention computes the attention of a model in use_blocks on a device."""
    if body.config._attn_implementation != NAME:
        return False
    heads = body.config.num_attention_heads
    size = getattr(body.config, "head_dim", None) or body.config.hidden_size // heads
    return device.type == "cpu" or (size in HEAD_SIZES and compiles())


def compiles() -> bool:
    """Whether torch can compile kernels for a GPU here: it needs triton and a compiler of C."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang", "cc"]
    return importlib.util.find_spec("triton") is not None and any(map(shutil.which, names))


def use_blocks(body: Any) -> None:
    """Let a model whose attention is torch's, and reaches all tokens, take masks of blocks. What is
    saved of it does not change.

    Of others no row is packed, and some, such as DeepSeek V3.2, choose the tokens that they attend
    to only under the names of attention that they know.
    """
    if body.config._attn_implementation == "sdpa" and not borders(body.config):
        body.set_attn_implementation(NAME)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
