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


@dataclass(frozen=True)
class Action:
    """An action of a row. row: its number among all that were begun."""

    row: int
    tokens: Sequence[int]
    logps: Sequence[float]
    versions: Sequence[int]


class Talks(Protocol):
    """Answers the actions of all rows.

    room: tokens that the next action of a row may have. answer: takes the actions that ended at the
    same step; returns the tokens that each row reads next, None where it is not written on.
    """

    def room(self, row: int) -> int: ...

    def answer(self, actions: Sequence[Action]) -> list[Sequence[int] | None]: ...


@dataclass
class TurnRow:
    """A row while it is written. number: among all that were begun. room: tokens of the present
    action at most. drawn: tokens that were drawn in all. unread: of an observation. tokens, logps,
    versions: of the present action."""

    number: int
    room: int
    drawn: int = 0
    is_done: bool = False
    unread: deque[int] = field(default_factory=deque)
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def action(self) -> Action:
        return Action(self.number, self.tokens, self.logps, self.versions)

    def take(self, token: int, logp: float, version: int) -> int:
        """The token of this step: the next one of an observation, or the one that was drawn."""
        if self.unread:
            return self.unread.popleft()
        if not self.is_done:
            self.drawn += 1
            self.tokens.append(token)
            self.logps.append(logp)
            self.versions.append(version)
        return token

    def is_at_end(self, eos: int) -> bool:
        """Whether the action that is being written has ended."""
        tokens = self.tokens
        return bool(tokens) and (tokens[-1] == eos or len(tokens) == self.room)

    def go_on(self, answer: Sequence[int] | None, room: int) -> None:
        """Read an answer, then write the next action; None is the end."""
        self.tokens, self.logps, self.versions = [], [], []
        self.room = room
        self.is_done = answer is None
        self.unread.extend(answer or ())


@dataclass(frozen=True)
class TurnWriter:
    """Writes rows by a decoder. Every row gets one token a step, drawn or observed, so that no row
    waits for the turn of another, and no context is read again. eos: the end token."""

    decoder: Decoder
    temperature: float
    eos: int

    def write(self, rows: Rows, talks: Talks, room: int, load: Load) -> None:
        """Write all rows until they are not written on. room: tokens of a row at most, observed
        ones included."""
        version = load(rows.start)
        logits_BV = self.decoder.begin(rows.texts, rows.repeats, room)
        numbers = rows.number_B.tolist()
        open_rows = [TurnRow(number, talks.room(number)) for number in numbers]
        is_greedy_B = rows.is_greedy_B
        for step in range(1, room + 1):
            token_B = self._taken(rows, open_rows, logits_BV, is_greedy_B, version)
            self._answer(talks, open_rows)
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
        taken = [row.take(token, logp, version) for row, token, logp in cells]
        return torch.tensor(taken, device=device)

    def _answer(self, talks: Talks, open_rows: Sequence[TurnRow]) -> None:
        """Answer the actions that have ended, all at once."""
        ended = [row for row in open_rows if row.is_at_end(self.eos)]
        answers = talks.answer([row.action for row in ended]) if ended else []
        for row, answer in zip(ended, answers, strict=True):
            row.go_on(answer, talks.room(row.number))
