"""The static decode loop: a step of the lean loop that never changes a shape or an address.

So a GPU can replay it as a graph. It is plain torch code and runs on a CPU just as well. All rows
write at the same column of a cache that is as long as the longest text may become; what is not
written yet is masked. Weights may be exchanged between two steps, in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rlhf_lab.models.layer_stack import Stack, stack_of, turned
from rlhf_lab.rollout.generators.lean_prompts import ReadPrompts, read_prompts
from rlhf_lab.rollout.generators.static_cache import SPAN, StaticCache, bucket, rounded


class StaticDecoder:
    """Writes rows token by token. `cache` is replaced only when a chunk needs a larger one.

    size: rows that are computed, of which `rows` count and the others are copies of the last.
    num_caches: that were made.
    """

    cache: StaticCache

    def __init__(self, stack: Stack, device: torch.device) -> None:
        self._stack = stack
        self.device = device
        self.rows = self.size = self.num_caches = 0
        self._column = 0

    def begin(
        self, prompts: Sequence[Sequence[int]], repeats: int, room: int, idle_steps: int = 0
    ) -> Tensor:
        """Read prompts, each for `repeats` consecutive rows; logits BV of what comes next.

        room: tokens that will be written at most. idle_steps: have places of their own.
        """
        read = read_prompts(self._stack, self.device, prompts)
        self.rows = len(prompts) * repeats
        self.size = bucket(self.rows)
        self._fit(self.size, read.width + room + idle_steps, read)
        row_R = torch.arange(self.size, device=self.device).clamp(max=self.rows - 1)
        self.cache.fill(read, row_R // repeats)
        self._column = read.width
        return self._logits(read.hidden_PE.repeat_interleave(repeats, dim=0))

    def _fit(self, rows: int, columns: int, read: ReadPrompts) -> None:
        """Make larger buffers where those that are there do not suffice."""
        if hasattr(self, "cache"):
            if self.cache.fits(rows, columns):
                return
            rows = max(rows, self.cache.bias.shape[0])
            columns = max(columns, self.cache.bias.shape[1])
            del self.cache
        self.num_caches += 1
        self.cache = StaticCache.like(read, self._stack, rows, rounded(columns, SPAN))

    @property
    def width(self) -> int:
        """Columns that the next step's attention reads."""
        return rounded(self._column + 1, SPAN)

    def step(self, token_B: Tensor, idle: Sequence[bool] = ()) -> Tensor:
        """Write a token to every row; logits BV of what comes next. What an idle row wrote is
        masked from then on."""
        self.cache.token[: self.rows] = token_B
        logits_RV = self.forward(self.size, self.width)
        if any(idle):
            row_I = torch.tensor([row for row, one in enumerate(idle) if one], device=self.device)
            self.cache.position[row_I] -= 1
            self.cache.bias[row_I, self._column] = -torch.inf
        self.count()
        return logits_RV[: self.rows]

    def count(self) -> None:
        """The host's count of a step, which `forward` on the device knows by itself."""
        self._column += 1

    def forward(self, size: int, width: int) -> Tensor:
        """Read the rows' tokens and write their keys and values in place; logits of what comes
        next. Waits for nothing: it can be captured."""
        cache = self.cache
        hidden_R1E = self._stack.embed(cache.token[:size].unsqueeze(1))
        position_R = cache.position[:size]
        cos = cache.cosines.index_select(0, position_R)[:, None, None]
        sin = cache.sines.index_select(0, position_R)[:, None, None]
        bias = cache.bias[:size, :width].index_fill_(1, cache.column, 0.0)[:, None, None]
        for block, keys, values in zip(self._stack.blocks, cache.keys, cache.values, strict=True):
            query, key, value = block.project(hidden_R1E)
            # Queries and keys are turned by one operation.
            both = turned(torch.cat([query, key], dim=1), cos, sin)
            query, key = both[:, : query.shape[1]], both[:, query.shape[1] :]
            keys, values = keys[:size], values[:size]
            keys.index_copy_(2, cache.column, key)
            values.index_copy_(2, cache.column, value)
            # Heads that share keys are rows of one product.
            query = query.reshape(size, key.shape[1], -1, query.shape[3])
            found = scaled_dot_product_attention(
                query, keys[:, :, :width], values[:, :, :width], bias, scale=self._stack.scaling
            )
            hidden_R1E = block.merge(hidden_R1E, found.reshape(size, 1, -1))
        position_R.add_(1)
        cache.column.add_(1)
        return self._logits(hidden_R1E[:, 0])

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""
        self.rows = len(rows)
        self.size = bucket(self.rows)
        self.cache.keep(filled(rows, self.size), self._column)

    def _logits(self, hidden_BE: Tensor) -> Tensor:
        return self._stack.head(self._stack.norm(hidden_BE))


def filled(rows: Tensor, size: int) -> Tensor:
    """The rows, and the last of them again until there are `size`."""
    return torch.cat([rows, rows[-1:].expand(size - len(rows))])


def static_decoder(model: Any) -> StaticDecoder | None:
    """A decoder over the model's modules, None if its class is not known."""
    stack = stack_of(model)
    return None if stack is None else StaticDecoder(stack, model.device)
