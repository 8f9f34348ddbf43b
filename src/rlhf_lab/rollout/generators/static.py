"""The static decode loop: a step of the lean loop that never changes a shape or an address.

So a GPU can replay it as a graph. It is plain torch code and runs on a CPU just as well. All rows
write at the same column of a cache that is as long as the longest text may become; what is not
written yet is masked. Weights may be exchanged between two steps, in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rlhf_lab.models.layer_stack import Stack, signed, stack_of, turned
from rlhf_lab.rollout.generators.lean import ReadPrompts, read_prompts

# Rows are decoded by so many, the smallest number that takes all of them: one graph for each.
BUCKETS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
# Attention reads the cache up to a multiple of so many tokens. It is as fast as memory lets it be,
# so time goes into what it reads in vain; each multiple costs one step without a graph and one
# capture.
SPAN = 64


def bucket(rows: int) -> int:
    """Rows that are decoded together for these."""
    fitting = [size for size in BUCKETS if size >= rows]
    return fitting[0] if fitting else rounded(rows, BUCKETS[-1])


def rounded(number: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-number // unit) * unit


@dataclass(frozen=True)
class StaticCache:
    """R rows of C tokens. keys, values: of each layer, R heads C D.

    bias: RC, -inf where a row has no token (yet). cosines, sines: of each position, C by rotated
    numbers. token, position: R, the token to read and its position. column: 1, its place among C.
    """

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor
    cosines: Tensor
    sines: Tensor
    token: Tensor
    position: Tensor
    column: Tensor

    @classmethod
    def like(cls, read: ReadPrompts, stack: Stack, rows: int, columns: int) -> StaticCache:
        """Empty buffers for rows of such prompts."""
        hidden, device = read.hidden_PE[:1, None], read.hidden_PE.device
        cos, sin = stack.rotary(hidden, torch.arange(columns, device=device)[None])
        shapes = [(rows, layer.shape[1], columns, layer.shape[3]) for layer in read.keys]
        return cls(
            keys=[hidden.new_zeros(shape) for shape in shapes],
            values=[hidden.new_zeros(shape) for shape in shapes],
            bias=hidden.new_zeros(rows, columns),
            cosines=cos[0].clone(),
            sines=signed(sin[0]),
            token=torch.zeros(rows, dtype=torch.int64, device=device),
            position=torch.zeros(rows, dtype=torch.int64, device=device),
            column=torch.zeros(1, dtype=torch.int64, device=device),
        )

    def fits(self, rows: int, columns: int) -> bool:
        """Whether the buffers take so many rows of so many tokens."""
        return rows <= self.bias.shape[0] and columns <= self.bias.shape[1]

    def fill(self, read: ReadPrompts, prompt_R: Tensor) -> None:
        """Begin anew with the rows of these prompts."""
        rows = len(prompt_R)
        layers = zip(self.keys + self.values, read.keys + read.values, strict=True)
        for mine, theirs in layers:
            mine.zero_()  # a NaN of earlier rows would spread through the products with zero
            mine[:rows, :, : read.width] = theirs[prompt_R]
        self.bias.fill_(-torch.inf)
        self.bias[:rows, : read.width].masked_fill_(~read.is_pad_PS[prompt_R], 0.0)
        self.position[:rows] = read.length_P[prompt_R]
        self.column.fill_(read.width)

    def keep(self, row_R: Tensor, columns: int) -> None:
        """Move these rows to the front. columns: tokens that any of them has."""
        rows = len(row_R)
        for layer in self.keys + self.values:
            layer[:rows, :, :columns] = layer[row_R, :, :columns]
        for buffer in (self.bias, self.token, self.position):
            buffer[:rows] = buffer[row_R]


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
