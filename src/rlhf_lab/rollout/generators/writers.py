"""The decode loops around a decoder: a token a step for every row, in one turn or in several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from rlhf_lab.rollout.generators.decoders import Decoder
from rlhf_lab.rollout.generators.draw import draw, is_end
from rlhf_lab.rollout.generators.episodes import Action

# Loads the weights that write the token at this step; returns their version.
Load = Callable[[int], int]


@dataclass(frozen=True)
class Rows:
    """The rows to write: `texts` (token ids), each read once for `repeats` consecutive rows.

    number_B: index of each row among the chunk's samples. start: tokens that every row has already,
    by which weights are read, or turns that their episodes have.
    uniform_BT: one random number for each new token, of which there are T at most. is_greedy_B:
    None where no row is greedy.
    """

    texts: Sequence[Sequence[int]]
    repeats: int
    number_B: Tensor
    start: int
    uniform_BT: Tensor
    is_greedy_B: Tensor | None


@dataclass(frozen=True)
class WrittenTokens:
    """New tokens and their log-probs, BT (what follows an end token is ignored), and the version
    that wrote each column."""

    token_BT: Tensor
    logp_BT: Tensor
    versions: list[int]


def require_numbers(logp: Tensor, version: int) -> None:
    """Raise where log-probs are NaN, which elsewhere means that the writer is unknown."""
    if bool(logp.isnan().any()):
        raise FloatingPointError(
            f"the policy's log-probs are NaN at version {version}: no sample was made"
        )


# Finished rows leave the batch when no more than this share of its rows still writes: to copy the
# others costs about as much as a few tokens.
STILL_WRITING = 0.75


@dataclass(frozen=True)
class StepwiseWriter:
    """Writes rows by a decoder. ends: the end tokens."""

    decoder: Decoder
    temperature: float
    ends: Sequence[int]

    def write(self, rows: Rows, load: Load) -> WrittenTokens:
        """Write all rows until they end or the random numbers do."""
        versions = [load(rows.start)]
        device = rows.uniform_BT.device
        room = rows.uniform_BT.shape[1]
        logits_BV = self.decoder.begin(rows.texts, rows.repeats, room)
        uniform_TB = rows.uniform_BT.T.contiguous()
        tokens = torch.full(uniform_TB.shape, self.ends[0], device=device)
        end_E = torch.tensor(self.ends, device=device)
        logps = torch.zeros(uniform_TB.shape, device=device)
        row_B = torch.arange(uniform_TB.shape[1], device=device)
        done_B = torch.zeros_like(row_B, dtype=torch.bool)
        is_greedy_B = rows.is_greedy_B
        for column in range(room):
            token_B, logp_B = draw(
                logits_BV, self.temperature, uniform_TB[column, row_B], is_greedy_B
            )
            tokens[column, row_B], logps[column, row_B] = token_B, logp_B
            done_B = done_B | is_end(token_B, end_E)
            writing = len(done_B) - int(done_B.sum())
            if column + 1 == room or not writing:
                break
            if writing <= STILL_WRITING * len(done_B):
                kept = torch.where(~done_B)[0]
                self.decoder.keep(kept)
                row_B, done_B, token_B = row_B[kept], done_B[kept], token_B[kept]
                is_greedy_B = None if is_greedy_B is None else is_greedy_B[kept]
            versions.append(load(rows.start + column + 1))
            logits_BV = self.decoder.step(token_B)
        end = len(versions)
        return WrittenTokens(tokens[:end].T.cpu(), logps[:end].T.cpu(), versions)


@dataclass
class TurnRow:
    """A row while it is written. number: among all that were begun. room: tokens of the present
    action at most. drawn: tokens that were drawn in all. unread: of an observation. tokens, logps,
    versions: of the present action. wait: steps until its answer is read, None while it writes or
    reads."""

    number: int
    room: int
    drawn: int = 0
    is_done: bool = False
    wait: int | None = None
    unread: deque[int] = field(default_factory=deque)
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Whether the row repeats its last token: it is done, or waits."""
        return self.is_done or self.wait is not None

    @property
    def action(self) -> Action:
        return Action(self.number, self.tokens, self.logps, self.versions)

    def take(self, token: int, logp: float, version: int) -> int:
        """The token of this step: the next one of an observation, or the one that was drawn; the
        action's last one again while its answer is awaited."""
        if self.unread:
            return self.unread.popleft()
        if self.wait is not None:
            self.wait -= 1
            return self.tokens[-1]
        if not self.is_done:
            self.drawn += 1
            self.tokens.append(token)
            self.logps.append(logp)
            self.versions.append(version)
        return token

    def is_at_end(self, ends: Sequence[int]) -> bool:
        """Whether the action that was being written has ended."""
        tokens = self.tokens
        has_ended = bool(tokens) and (tokens[-1] in ends or len(tokens) == self.room)
        return has_ended and self.wait is None

    def go_on(self, answer: Sequence[int] | None, room: int) -> None:
        """Read an answer, then write the next action; None is the end."""
        self.tokens, self.logps, self.versions = [], [], []
        self.wait = None
        self.room = room
        self.is_done = answer is None
        self.unread.extend(answer or ())


def due(rows: Sequence[TurnRow]) -> list[TurnRow]:
    """The rows whose answer is read now: those that have waited long enough. Where no row writes
    or reads, the steps are skipped until the first has. So the states of the rows decide, and no
    clock."""
    waiting = [row for row in rows if row.wait is not None]
    waits = [row.wait for row in waiting if row.wait is not None]
    if waiting and all(row.is_idle for row in rows):
        skipped = min(waits)
        waits = [wait - skipped for wait in waits]
        for row, wait in zip(waiting, waits, strict=True):
            row.wait = wait
    return [row for row, wait in zip(waiting, waits, strict=True) if wait == 0]


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
