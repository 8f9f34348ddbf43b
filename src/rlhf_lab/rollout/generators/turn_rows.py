"""A row of the decode loop for samples of several turns: it writes, waits, reads, or is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Action:
    """An action of a row. row: its number among all that were begun."""

    row: int
    tokens: Sequence[int]
    logps: Sequence[float]
    versions: Sequence[int]


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
