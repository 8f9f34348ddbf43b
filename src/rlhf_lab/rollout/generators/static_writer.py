"""The loop around static decoding, which learns only every few tokens which rows ended."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.rollout.generators.draw import draw, is_end
from rlhf_lab.rollout.generators.static import StaticDecoder, bucket, filled
from rlhf_lab.rollout.generators.writers import Load, Rows, WrittenTokens

# A capture waits for the whole device and makes torch's random state its own for a moment.
CAPTURING = threading.Lock()


class Replays:
    """Calls functions that read and write fixed buffers alone; on a GPU by their graphs.

    A function must not wait for values on the device, and the buffers and the model's weights must
    stay where they are until `clear`. The first call of a key runs its function, so that what
    libraries make at their first use is there; the second captures it, and launches the graph as
    the later ones do.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captures = device.type == "cuda"
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        # Of all graphs, which never run at the same time: what one needs meanwhile is free again.
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def clear(self) -> None:
        """Forget all graphs."""
        self._graphs.clear()
        self._pool = None

    def __call__(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run the function, which is always the same one for this key."""
        if not self._captures or key not in self._graphs:
            self._graphs[key] = None
            function()
            return
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = self._captured(function)
        graph.replay()

    def _captured(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The function's graph, which has not run yet. Other threads may use the GPU meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with CAPTURING, torch.cuda.device(self._device):
            if self._stream is None:
                stream = torch.cuda.Stream(self._device, priority=-1)  # type: ignore[no-untyped-call]
                self._stream = stream
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            # Else an allocation of a trainer in another thread would break the capture.
            with torch.cuda.graph(graph, self._pool, self._stream, "thread_local"):
                function()
        return graph


# The host waits for the device once in so many tokens, to see which rows ended.
FLAG_STEPS = 8


@dataclass(frozen=True)
class StaticOutput:
    """What was written, as cells: token t of row r is cell t * (rows + 1) + r, and the last cell of
    each token is written by rows that do not count.

    uniform, token, logp: one for each cell. row, is_greedy, is_done: of the decoder's rows.
    written: 1, tokens of each row.
    """

    uniform: Tensor
    token: Tensor
    logp: Tensor
    row: Tensor
    is_greedy: Tensor
    is_done: Tensor
    written: Tensor

    @property
    def rows(self) -> int:
        """Rows that fit."""
        return len(self.row)

    @property
    def room(self) -> int:
        """Tokens of a row that fit."""
        return len(self.token) // (self.rows + 1)

    @classmethod
    def empty(cls, rows: int, room: int, device: torch.device) -> StaticOutput:
        """Buffers for so many rows of so many tokens."""
        cells = room * (rows + 1)
        return cls(
            uniform=torch.zeros(cells, dtype=torch.float64, device=device),
            token=torch.zeros(cells, dtype=torch.int64, device=device),
            logp=torch.zeros(cells, device=device),
            row=torch.zeros(rows, dtype=torch.int64, device=device),
            is_greedy=torch.zeros(rows, dtype=torch.bool, device=device),
            is_done=torch.zeros(rows, dtype=torch.bool, device=device),
            written=torch.zeros(1, dtype=torch.int64, device=device),
        )

    def fits(self, rows: int, room: int) -> bool:
        """Whether the buffers take so many rows of so many tokens."""
        return rows <= self.rows and room <= self.room

    def begin(self, rows: Rows, end: int) -> None:
        """Nothing written, every row at its own place."""
        count, room = rows.uniform_BT.shape
        self._cells(self.uniform, room)[:, :count] = rows.uniform_BT.T
        self.token.fill_(end)
        self.logp.zero_()
        self.row.fill_(self.rows)
        self.row[:count] = torch.arange(count, device=self.row.device)
        if rows.is_greedy_B is not None:
            self.is_greedy[:count] = rows.is_greedy_B
        self.is_done.zero_()
        self.written.zero_()

    def _cells(self, buffer: Tensor, room: int) -> Tensor:
        return buffer[: room * (self.rows + 1)].view(room, self.rows + 1)

    def keep(self, row_R: Tensor, count: int) -> None:
        """Move these rows to the front; those from `count` on do not count."""
        for buffer in (self.row, self.is_greedy, self.is_done):
            buffer[: len(row_R)] = buffer[row_R]
        self.row[count : len(row_R)] = self.rows

    def result(self, count: int, versions: list[int]) -> WrittenTokens:
        """The tokens of so many rows, one for each version."""
        cells = [self._cells(part, len(versions))[:, :count] for part in (self.token, self.logp)]
        token_BT, logp_BT = (part.T.cpu() for part in cells)
        return WrittenTokens(token_BT, logp_BT, versions)


class StaticWriter:
    """Writes rows by a static decoder. ends: the end tokens.

    A row that ended is written until the host sees it; what it writes meanwhile is ignored.
    """

    def __init__(self, decoder: StaticDecoder, temperature: float, ends: Sequence[int]) -> None:
        self._decoder = decoder
        self._temperature = temperature
        self._end_E = torch.tensor(ends, device=decoder.device)
        self._fill = ends[0]
        self._output = StaticOutput.empty(0, 0, decoder.device)
        self._replays = Replays(decoder.device)
        self._caches = 0

    def write(self, rows: Rows, load: Load) -> WrittenTokens:
        """Write all rows until they end or the random numbers do."""
        count, room = rows.uniform_BT.shape
        versions = [load(rows.start)]
        logits_BV = self._decoder.begin(rows.texts, rows.repeats, room)
        self._fit(room)
        self._output.begin(rows, self._fill)
        self._record(logits_BV, rows.is_greedy_B is not None)
        while len(versions) < room:
            if len(versions) % FLAG_STEPS == 0 and not self._compact():
                break
            versions.append(load(rows.start + len(versions)))
            self._advance(rows.is_greedy_B is not None)
        return self._output.result(count, versions)

    def _fit(self, room: int) -> None:
        """Buffers of the decoder's size, and no graph that reads others."""
        decoder, output = self._decoder, self._output
        has_grown = not output.fits(decoder.size, room)
        if has_grown:
            size = max(decoder.size, output.rows)
            self._output = StaticOutput.empty(size, max(room, output.room), decoder.device)
        if has_grown or self._caches != decoder.num_caches:
            self._replays.clear()
            self._caches = decoder.num_caches

    def _advance(self, has_greedy: bool) -> None:
        """Read the last tokens and draw the next ones."""
        key = (self._decoder.size, self._decoder.width, has_greedy)
        self._replays(key, functools.partial(self._step, *key))
        self._decoder.count()

    def _step(self, size: int, width: int, has_greedy: bool) -> None:
        self._record(self._decoder.forward(size, width), has_greedy)

    def _record(self, logits_RV: Tensor, has_greedy: bool) -> None:
        """Draw a token for each row and note it."""
        output, size = self._output, len(logits_RV)
        cell_R = output.written * (output.rows + 1) + output.row[:size]
        is_greedy_R = output.is_greedy[:size] if has_greedy else None
        uniform_R = output.uniform.index_select(0, cell_R)
        token_R, logp_R = draw(logits_RV, self._temperature, uniform_R, is_greedy_R)
        output.token.index_copy_(0, cell_R, token_R)
        output.logp.index_copy_(0, cell_R, logp_R)
        output.is_done[:size].logical_or_(is_end(token_R, self._end_E))
        self._decoder.cache.token[:size] = token_R
        output.written.add_(1)

    def _compact(self) -> bool:
        """Let the rows go that ended, if the others are a smaller batch; whether any is left."""
        decoder, output = self._decoder, self._output
        is_done = output.is_done[: decoder.rows].tolist()
        writing = [row for row, done in enumerate(is_done) if not done]
        if writing and bucket(len(writing)) < decoder.size:
            kept = torch.tensor(writing, device=decoder.device)
            decoder.keep(kept)
            output.keep(filled(kept, decoder.size), len(writing))
        return bool(writing)
