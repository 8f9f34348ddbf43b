"""The decode loops of any causal language model of transformers: over its own cache, or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.batching import pad_left
from rlhf_lab.models.forward import positions

# What models call their cache, as argument and as result: of attention, or of states alone.
ATTENTION, STATES = "past_key_values", "cache_params"


class PlainDecoder:
    """Writes rows token by token; a row is a prompt and one of its samples."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def begin(
        self, prompts: Sequence[Sequence[int]], repeats: int, room: int, idle_steps: int = 0
    ) -> Tensor:
        """Read prompts, each once for `repeats` consecutive rows; logits BV of what comes next."""
        token_PS, mask_PS = (t.to(self._model.device) for t in pad_left(prompts, 0))
        output = self._model(
            input_ids=token_PS,
            attention_mask=mask_PS,
            position_ids=positions(mask_PS),
            use_cache=True,
            logits_to_keep=1,
        )
        (self._name,) = {ATTENTION, STATES}.intersection(output)
        self._cache = output[self._name]
        # Of all ways to repeat and select rows, the one that every kind of layer has.
        row_B = torch.arange(len(prompts), device=token_PS.device).repeat_interleave(repeats)
        self._cache.reorder_cache(row_B)
        self._mask_BS = mask_PS.repeat_interleave(repeats, dim=0)
        self._position_B1 = self._mask_BS.sum(dim=1, keepdim=True)
        logits_BV: Tensor = output.logits[:, -1].repeat_interleave(repeats, dim=0)
        return logits_BV

    def step(self, token_B: Tensor, idle: Sequence[bool] = ()) -> Tensor:
        """Write a token to every row; logits BV of what comes next. What an idle row wrote is
        masked from then on: only models that find no place by columns of the cache bear that."""
        one_B1 = torch.ones_like(self._position_B1)
        self._mask_BS = torch.cat([self._mask_BS, one_B1], dim=1)
        logits_BV: Tensor = self._model(
            input_ids=token_B.unsqueeze(1),
            # States hold no padding, and have no columns to mask.
            attention_mask=self._mask_BS if self._name == ATTENTION else None,
            position_ids=self._position_B1,
            use_cache=True,
            **{self._name: self._cache},
        ).logits[:, -1]
        if any(idle):
            one_B1 = ~torch.tensor(idle, device=one_B1.device).unsqueeze(1) * one_B1
            self._mask_BS[:, -1:] = one_B1
        self._position_B1 = self._position_B1 + one_B1
        return logits_BV

    def keep(self, rows: Tensor) -> None:
        """Keep these rows alone, in this order."""
        self._cache.reorder_cache(rows)
        self._mask_BS = self._mask_BS[rows]
        self._position_B1 = self._position_B1[rows]


class RereadingDecoder:
    """Writes rows token by token, and reads them anew for each: for models whose cache cannot be
    repeated, or does not find what a whole row finds."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def begin(
        self, prompts: Sequence[Sequence[int]], repeats: int, room: int, idle_steps: int = 0
    ) -> Tensor:
        """Logits BV of what comes next, for `repeats` consecutive rows of each prompt."""
        self._rows = [list(prompt) for prompt in prompts for _ in range(repeats)]
        return self._logits()

    def step(self, token_B: Tensor, idle: Sequence[bool] = ()) -> Tensor:
        """Write a token to every row that is not idle; logits BV of what comes next."""
        for number, token in enumerate(token_B.tolist()):
            if not (idle and idle[number]):
                self._rows[number].append(token)
        return self._logits()

    def keep(self, rows: Tensor) -> None:
        """Keep these rows alone, in this order."""
        self._rows = [self._rows[number] for number in rows.tolist()]

    def _logits(self) -> Tensor:
        token_BS, mask_BS = (t.to(self._model.device) for t in pad_left(self._rows, 0))
        logits_BV: Tensor = self._model(
            input_ids=token_BS,
            attention_mask=mask_BS,
            position_ids=positions(mask_BS),
            use_cache=False,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits_BV
