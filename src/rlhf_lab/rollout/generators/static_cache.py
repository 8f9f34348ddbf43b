"""The buffers of static decoding: made once, and written in place from then on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_lab.models.layer_stack import Stack, signed
from rlhf_lab.rollout.generators.lean_prompts import ReadPrompts

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
