"""The lean decode loop: without the bookkeeping of transformers, keys and values in place.

A small model spends most of a step of `transformers` on masks, caches and wrappers. Here a step is
the model's own modules and two products of attention. Prompts of similar length are read together,
each prompt once for all of its samples, and the last layer is computed for the last token alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.last_token_forward import last_columns
from rlhf_lab.models.layer_stack import Stack, signed, stack_of, turned

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


class Ragged:
    """Where each row writes its next token. lengths: tokens that each has written.

    ahead: indices of each row's own place in a buffer of places by rows. bias: B by one head, one
    query and places, -inf where a row has not written.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self._lengths = list(lengths)
        self._row_B = torch.arange(len(lengths), device=device)
        self._place()

    @property
    def longest(self) -> int:
        """Tokens that any row has written."""
        return max(self._lengths)

    def write(self, buffer: Tensor, row_BHD: Tensor) -> None:
        """Write into a buffer of B heads T D."""
        buffer[self._row_B, :, self._place_B] = row_BHD

    def count(self, idle: Sequence[bool]) -> None:
        """Every row but idle ones has a token more."""
        for row in range(len(self._lengths)):
            self._lengths[row] += not (idle and idle[row])
        self._place()

    def kept(self, rows: Sequence[int]) -> Ragged:
        """These rows alone."""
        return Ragged([self._lengths[row] for row in rows], self._row_B.device)

    def _place(self) -> None:
        device = self._row_B.device
        self._place_B = torch.tensor(self._lengths, device=device)
        self.ahead = (self._place_B, self._row_B)
        is_later_BT = torch.arange(self.longest + 1, device=device) > self._place_B.unsqueeze(1)
        bias_BT = torch.zeros(is_later_BT.shape, device=device)
        self.bias = bias_BT.masked_fill_(is_later_BT, -torch.inf)[:, None, None]


class LeanDecoder:
    """Writes rows token by token; a row is a prompt and one of its samples."""

    def __init__(self, stack: Stack, device: torch.device) -> None:
        self._stack = stack
        self._device = device

    def begin(
        self, prompts: Sequence[Sequence[int]], repeats: int, room: int, idle_steps: int = 0
    ) -> Tensor:
        """Read prompts, each for `repeats` consecutive rows; logits BV of what comes next.

        room: tokens that will be written at most. Idle steps need no more.
        """
        read = read_prompts(self._stack, self._device, prompts)
        self._width, self._repeats, self._done = read.width, repeats, 0
        self._ragged: Ragged | None = None
        self._read_keys, self._read_values = read.keys, read.values
        hidden_BE = read.hidden_PE.repeat_interleave(repeats, dim=0)
        bias_PS = torch.zeros(read.is_pad_PS.shape, device=self._device, dtype=hidden_BE.dtype)
        self._bias = bias_PS.masked_fill_(read.is_pad_PS, -torch.inf)[:, None, None]
        sizes = [(len(hidden_BE), k.shape[1], room, k.shape[3]) for k in self._read_keys]
        self._keys = [hidden_BE.new_zeros(size) for size in sizes]
        self._values = [hidden_BE.new_zeros(size) for size in sizes]
        length_B1 = read.length_P.unsqueeze(1).repeat_interleave(repeats, dim=0)
        ahead_BT = length_B1 + torch.arange(room, device=self._device)
        cos_BTR, sin_BTR = self._stack.rotary(hidden_BE, ahead_BT)
        self._turns = (cos_BTR.transpose(0, 1), signed(sin_BTR).transpose(0, 1))
        return self._logits(hidden_BE)

    def step(self, token_B: Tensor, idle: Sequence[bool] = ()) -> Tensor:
        """Write a token to every row; logits BV of what comes next. The next token of an idle row
        overwrites this one."""
        if any(idle) and self._ragged is None:
            self._ragged = Ragged([self._done] * len(idle), self._device)
        ragged = self._ragged
        hidden_B1E = self._stack.embed(token_B.unsqueeze(1))
        ahead = self._done if ragged is None else ragged.ahead
        cos, sin = (turn[ahead][:, None, None] for turn in self._turns)
        for number, block in enumerate(self._stack.blocks):
            query, key, value = block.project(hidden_B1E)
            query, key = turned(query, cos, sin), turned(key, cos, sin)
            if ragged is None:
                self._keys[number][:, :, self._done] = key[:, :, 0]
                self._values[number][:, :, self._done] = value[:, :, 0]
            else:
                ragged.write(self._keys[number], key[:, :, 0])
                ragged.write(self._values[number], value[:, :, 0])
            # Heads that share keys are rows of one product.
            query = query.reshape(len(query), key.shape[1], -1, query.shape[3])
            found = self._attended(number, query * self._stack.scaling)
            hidden_B1E = block.merge(hidden_B1E, found.reshape(len(found), 1, -1))
        if ragged is None:
            self._done += 1
        else:
            ragged.count(idle)
            self._done = ragged.longest
        return self._logits(hidden_B1E[:, 0])

    def _attended(self, number: int, query: Tensor) -> Tensor:
        """What a layer's queries find, as rows times heads of keys. A prompt's keys lie in memory
        once, and are read once for all of its rows: that is what a step waits for."""
        keys = self._keys[number][:, :, : self._done + 1]
        values = self._values[number][:, :, : self._done + 1]
        read = torch.matmul(self._by_prompt(query), self._read_keys[number].transpose(2, 3))
        written = torch.matmul(query, keys.transpose(2, 3))
        if self._ragged is not None:
            written += self._ragged.bias
        score = torch.cat([self._by_row(read + self._bias, query.shape[2]), written], dim=-1)
        share = torch.softmax(score, dim=-1, dtype=torch.float32).to(query.dtype)
        of_prompt = self._by_prompt(share[..., : self._width])
        found = torch.matmul(of_prompt, self._read_values[number])
        return self._by_row(found, query.shape[2]) + torch.matmul(share[..., self._width :], values)

    def _by_prompt(self, rows: Tensor) -> Tensor:
        """Rows of the same prompt as one matrix: B heads G D to P heads (repeats * G) D."""
        if self._repeats == 1:
            return rows
        _, heads, group, size = rows.shape
        apart = rows.reshape(-1, self._repeats, heads, group, size).transpose(1, 2)
        return apart.reshape(-1, heads, self._repeats * group, size)

    def _by_row(self, prompts: Tensor, group: int) -> Tensor:
        """Inverse of `_by_prompt`: one row per sample again."""
        if self._repeats == 1:
            return prompts
        count, heads, _, size = prompts.shape
        apart = prompts.view(count, heads, self._repeats, group, size).transpose(1, 2)
        return apart.reshape(-1, heads, group, size)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order. From here each has its prompt for itself."""
        of_row = rows // self._repeats
        self._read_keys = [keys[of_row] for keys in self._read_keys]
        self._read_values = [values[of_row] for values in self._read_values]
        self._bias, self._repeats = self._bias[of_row], 1
        self._keys = [keys[rows] for keys in self._keys]
        self._values = [values[rows] for values in self._values]
        cos, sin = self._turns
        self._turns = (cos[:, rows], sin[:, rows])
        if self._ragged is not None:
            self._ragged = self._ragged.kept(rows.tolist())
            self._done = self._ragged.longest

    def _logits(self, hidden_BE: Tensor) -> Tensor:
        return self._stack.head(self._stack.norm(hidden_BE))


def lean_decoder(model: Any) -> LeanDecoder | None:
    """A decoder over the model's modules, None if its class is not known."""
    stack = stack_of(model)
    return None if stack is None else LeanDecoder(stack, model.device)
