"""Reading prompts for the lean loops: those of similar length together, each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.forward import positions
from rlhf_lab.rollout.generators.lean_layers import Stack
from rlhf_lab.rollout.generators.lean_rotary import signed, turned

# A prompt is read with others as long as it needs less padding than this share of the longest.
SPARE = 0.25
MOST_TOGETHER = 64


@dataclass(frozen=True)
class ReadPrompts:
    """P prompts that were read, padded left to the longest one's S tokens.

    hidden_PE: of each last token, after all layers. keys, values: of each layer, P heads S D; where
    is_pad_PS is set they mean nothing. length_P: in tokens.
    """

    hidden_PE: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    is_pad_PS: Tensor
    length_P: Tensor

    @property
    def width(self) -> int:
        """Tokens of the longest prompt."""
        return self.is_pad_PS.shape[1]


def read_prompts(
    stack: Stack, device: torch.device, prompts: Sequence[Sequence[int]]
) -> ReadPrompts:
    """Read all prompts, part by part."""
    lengths = [len(prompt) for prompt in prompts]
    reader = Reader(stack, device, prompts, max(lengths))
    parts = list(alike(lengths))
    last = [reader.read(part) for part in parts]
    order = [place for part in parts for place in part]
    back = torch.tensor(order, device=device).argsort()
    length_P = torch.tensor(lengths, device=device)
    is_pad_PS = torch.arange(reader.width, device=device) < reader.width - length_P.unsqueeze(1)
    return ReadPrompts(torch.cat(last)[back], reader.keys, reader.values, is_pad_PS, length_P)


class Reader:
    """Reads parts of the prompts into buffers for all of them."""

    def __init__(
        self, stack: Stack, device: torch.device, prompts: Sequence[Sequence[int]], width: int
    ) -> None:
        self._stack = stack
        self._device = device
        self._prompts = prompts
        self.width = width
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def read(self, part: Sequence[int]) -> Tensor:
        """Read prompts of similar length into the buffers; the last hidden states, PE."""
        token_PS, mask_PS = (
            t.to(self._device) for t in pad_left([self._prompts[n] for n in part], 0)
        )
        width = token_PS.shape[1]
        # P rows of S tokens of E numbers; after the last layer of the last token alone.
        hidden = self._stack.embed(token_PS)
        cos, sin = self._stack.rotary(hidden, positions(mask_PS))
        cos, sin = cos.unsqueeze(1), signed(sin).unsqueeze(1)
        # A pad looks at itself, so that no row of the softmax is empty.
        sees = torch.ones(width, width, dtype=torch.bool, device=self._device)
        sees = sees.tril() & (mask_PS[:, None, None] > 0) | sees.diag().diag()
        place = torch.tensor(part, device=self._device)
        for number, block in enumerate(self._stack.blocks):
            query, key, value = block.project(hidden)
            query, key = turned(query, cos, sin), turned(key, cos, sin)
            self._put(self.keys, number, place, key)
            self._put(self.values, number, place, value)
            if number == len(self._stack.blocks) - 1:
                query, sees, hidden = query[:, :, -1:], sees[:, :, -1:], hidden[:, -1:]
            if query.device.type != "cpu":
                key, value = per_query(key, query), per_query(value, query)
            found = scaled_dot_product_attention(
                query, key, value, sees, scale=self._stack.scaling, enable_gqa=True
            )
            hidden = block.merge(hidden, found.transpose(1, 2).flatten(2))
        return hidden[:, -1]

    def _put(self, buffers: list[Tensor], number: int, place: Tensor, given: Tensor) -> None:
        """Keep a layer's keys or values of the prompts at these places."""
        if number == len(buffers):
            size = (len(self._prompts), given.shape[1], self.width, given.shape[3])
            buffers.append(given.new_zeros(size))
        buffers[number][place, :, self.width - given.shape[2] :] = given


def per_query(heads: Tensor, query: Tensor) -> Tensor:
    """Keys or values once for each head of queries. No kernel of a GPU takes both a mask and fewer
    keys than queries in float32: torch would store the scores of all pairs, three times."""
    return heads.repeat_interleave(query.shape[1] // heads.shape[1], dim=1)


def alike(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of rows by length, longest first, cut where much padding would be needed."""
    part: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        is_full = len(part) == MOST_TOGETHER
        if part and (is_full or lengths[place] < (1 - SPARE) * lengths[part[0]]):
            yield part
            part = []
        part.append(place)
    yield part
