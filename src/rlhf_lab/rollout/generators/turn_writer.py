"""The decode loop for samples of several turns; rows need not be at the same turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rlhf_lab.rollout.generators.decoders import Decoder
from rlhf_lab.rollout.generators.draw import draw
from rlhf_lab.rollout.generators.rows import Load, Rows, require_numbers
from rlhf_lab.rollout.generators.stepwise import STILL_WRITING
from rlhf_lab.rollout.generators.turn_rows import Action, TurnRow, due


class Talks(Protocol):
    """Answers the actions of all rows.

    ahead: steps that the others go on before an answer is read. idle_steps: in which a row waits
    for answers, at most. room: tokens that the next action
    of a row may have. ask: takes the actions that ended at the same step, and waits for nothing.
    answers: waits for the answers to the actions of these rows; returns the tokens that each reads
    next, None where it is not written on.
    """

    @property
    def ahead(self) -> int: ...

    @property
    def idle_steps(self) -> int: ...

    def room(self, row: int) -> int: ...

    def ask(self, actions: Sequence[Action]) -> None: ...

    def answers(self, rows: Sequence[int]) -> list[Sequence[int] | None]: ...


@dataclass(frozen=True)
class TurnWriter:
    """Writes rows by a decoder. Every row gets one token a step, drawn or observed, so that no row
    waits for the turn of another, and no context is read again. An answer is read so many steps
    behind its action (Talks.ahead), in which the others go on. ends: the end
    tokens."""

    decoder: Decoder
    temperature: float
    ends: Sequence[int]

    def write(self, rows: Rows, talks: Talks, room: int, load: Load) -> None:
        """Write all rows until they are not written on. room: tokens of a row at most, observed
        ones included."""
        version = load(rows.start)
        logits_BV = self.decoder.begin(rows.texts, rows.repeats, room, talks.idle_steps)
        numbers = rows.number_B.tolist()
        open_rows = [TurnRow(number, talks.room(number)) for number in numbers]
        is_greedy_B = rows.is_greedy_B
        steps = room + talks.idle_steps
        for step in range(1, steps + 1):
            token_B = self._taken(rows, open_rows, logits_BV, is_greedy_B, version)
            self._answer(talks, open_rows)
            kept = [place for place, row in enumerate(open_rows) if not row.is_done]
            if step == steps or not kept:
                break
            if len(kept) <= STILL_WRITING * len(open_rows):
                kept_R = torch.tensor(kept, device=token_B.device)
                self.decoder.keep(kept_R)
                open_rows, token_B = [open_rows[place] for place in kept], token_B[kept_R]
                is_greedy_B = None if is_greedy_B is None else is_greedy_B[kept_R]
            version = load(rows.start + step)
            # Without waits no row is idle: one that is done goes on unseen.
            idle = [row.is_idle for row in open_rows] if talks.ahead else ()
            logits_BV = self.decoder.step(token_B, idle)

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
        """Hand over the actions that have ended, and read the answers that are due."""
        if ended := [row for row in open_rows if row.is_at_end(self.ends)]:
            talks.ask([row.action for row in ended])
        for row in ended:
            row.wait = talks.ahead
        # Where all who read an answer are done, the next ones are due.
        while answered := due(open_rows):
            answers = talks.answers([row.number for row in answered])
            for row, answer in zip(answered, answers, strict=True):
                row.go_on(answer, talks.room(row.number))
