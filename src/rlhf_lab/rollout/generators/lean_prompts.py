"""Reading prompts for the lean loops: those of similar length together, each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.last_token_forward import last_columns
from rlhf_lab.models.layer_stack import Stack

# A prompt is read with others as long as it needs less padding than this share of the longest. A
# GPU reads padding faster than the host sends it another part.
SPARE, SPARE_ON_GPU = 0.25, 0.5
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
    spare = SPARE if device.type == "cpu" else SPARE_ON_GPU
    parts = list(alike(lengths, spare))
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
        place = torch.tensor(part, device=self._device)

        def keep(number: int, key: Tensor, value: Tensor) -> None:
            self._put(self.keys, number, place, key)
            self._put(self.values, number, place, value)

        return last_columns(self._stack, token_PS, mask_PS, 1, keep)[:, -1]

    def _put(self, buffers: list[Tensor], number: int, place: Tensor, given: Tensor) -> None:
        """Keep a layer's keys or values of the prompts at these places."""
        if number == len(buffers):
            size = (len(self._prompts), given.shape[1], self.width, given.shape[3])
            buffers.append(given.new_zeros(size))
        buffers[number][place, :, self.width - given.shape[2] :] = given


def alike(lengths: Sequence[int], spare: float) -> Iterator[list[int]]:
    """Places of rows by length, longest first, cut where more padding than this share of the
    longest would be needed."""
    part: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        is_full = len(part) == MOST_TOGETHER
        if part and (is_full or lengths[place] < (1 - spare) * lengths[part[0]]):
            yield part
            part = []
        part.append(place)
    yield part
