"""The decode loop for samples of several turns; rows need not be at the same turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from rlhf_lab.rollout.generators.decoders import Decoder
from rlhf_lab.rollout.generators.draw import draw
from rlhf_lab.rollout.generators.rows import Load, Rows, require_numbers
from rlhf_lab.rollout.generators.stepwise import STILL_WRITING


class Talk(Protocol):
    """Answers the actions of one row.

    room: tokens that the next action may have. answer: takes an action, its tokens with their
    log-probs and versions; returns the tokens to read next, None where the row is not written on.
    """

    @property
    def room(self) -> int: ...

    def answer(
        self, tokens: Sequence[int], logps: Sequence[float], versions: Sequence[int]
    ) -> Sequence[int] | None: ...


@dataclass
class TurnRow:
    """A row while it is written. number: among the rows at the start. drawn: tokens that were drawn
    in all. unread: of an observation. tokens, logps, versions: of the present action."""

    number: int
    talk: Talk
    drawn: int = 0
    is_done: bool = False
    unread: deque[int] = field(default_factory=deque)
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def take(self, token: int, logp: float, version: int, eos: int) -> int:
        """The token of this step: the next one of an observation, or the one that was drawn. At an
        action's end it is answered."""
        if self.unread:
            return self.unread.popleft()
        if self.is_done:
            return token
        self.drawn += 1
        self.tokens.append(token)
        self.logps.append(logp)
        self.versions.append(version)
        if token == eos or len(self.tokens) == self.talk.room:
            answer = self.talk.answer(self.tokens, self.logps, self.versions)
            self.is_done = answer is None
            self.unread.extend(answer or ())
            self.tokens, self.logps, self.versions = [], [], []
        return token


@dataclass(frozen=True)
class TurnWriter:
    """Writes rows by a decoder. Every row gets one token a step, drawn or observed, so that no row
    waits for the turn of another, and no context is read again. eos: the end token."""

    decoder: Decoder
    temperature: float
    eos: int

    def write(self, rows: Rows, talks: Sequence[Talk], room: int, load: Load) -> None:
        """Write all rows until they are not written on. room: tokens of a row at most, observed
        ones included."""
        version = load(rows.start)
        logits_BV = self.decoder.begin(rows.texts, rows.repeats, room)
        open_rows = [TurnRow(number, talk) for number, talk in enumerate(talks)]
        is_greedy_B = rows.is_greedy_B
        for step in range(1, room + 1):
            token_B = self._taken(rows, open_rows, logits_BV, is_greedy_B, version)
            kept = [place for place, row in enumerate(open_rows) if not row.is_done]
            if step == room or not kept:
                break
            if len(kept) <= STILL_WRITING * len(open_rows):
                kept_R = torch.tensor(kept, device=token_B.device)
                self.decoder.keep(kept_R)
                open_rows, token_B = [open_rows[place] for place in kept], token_B[kept_R]
                is_greedy_B = None if is_greedy_B is None else is_greedy_B[kept_R]
            version = load(rows.start + step)
            logits_BV = self.decoder.step(token_B)

    def _taken(
        self,
        rows: Rows,
        open_rows: Sequence[TurnRow],
        logits_BV: Tensor,
        is_greedy_B: Tensor | None,
        version: int,
    ) -> Tensor:
        """The token of each row that is still in the batch, B."""
        device = rows.uniform_BT.device
        last = rows.uniform_BT.shape[1] - 1
        row_B = torch.tensor([row.number for row in open_rows], device=device)
        drawn_B = torch.tensor([min(row.drawn, last) for row in open_rows], device=device)
        uniform_B = rows.uniform_BT[row_B, drawn_B]
        token_B, logp_B = draw(logits_BV, self.temperature, uniform_B, is_greedy_B)
        require_numbers(logp_B, version)
        cells = zip(open_rows, token_B.tolist(), logp_B.tolist(), strict=True)
        taken = [row.take(token, logp, version, self.eos) for row, token, logp in cells]
        return torch.tensor(taken, device=device)
