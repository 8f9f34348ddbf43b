"""Rows of lean decoding that have different numbers of tokens, since some were idle for a while."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
