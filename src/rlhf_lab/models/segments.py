"""Segments of packed rows: padding, the prompt, and the responses, each with a number."""

from __future__ import annotations

from torch import Tensor

# The attention that looks at these (block_attention.py, imported only where it is used: it needs
# what transformers imports for models), by its name in a model's config.
NAME = "rlhf_lab"
# Tokens of a block's side. Rows of packed tokens are as wide as whole blocks: shorter ones would
# take FlexAttention's kernel for decoding, which knows fewer models.
BLOCK = 128
PADDING, PROMPT, FIRST_RESPONSE = 0, 1, 2


def may_see(segment: Tensor, other: Tensor, place: Tensor, other_place: Tensor) -> Tensor:
    """Whether a token of a segment, at a place of its row, attends to another: to earlier tokens of
    its prompt and its own response.

    Padding sees itself, because a softmax over nothing is not a number.
    """
    is_own = (other == PROMPT) | (other == segment)
    return is_own & (other != PADDING) & (other_place <= place) | (other_place == place)
