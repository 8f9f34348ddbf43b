"""Chunks made ahead of time, so that a trainer never waits for prompts to be read and encoded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from rlhf_lab.types.data import Chunk


class ChunkPrefetcher:
    """ahead(n) is make(n), and the next `count` chunks are being made when it returns.

    One thread makes all of them; which chunk is asked for when changes none of them.
    """

    def __init__(self, make: Callable[[int], Chunk], count: int) -> None:
        self._make = make
        self._count = count
        self._made: dict[int, Future[Chunk]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    def __call__(self, number: int) -> Chunk:
        wanted = [number, *range(number + 1, number + 1 + self._count)]
        for place in wanted:
            if place not in self._made:
                self._made[place] = self._pool.submit(self._make, place)
        chunk = self._made.pop(number).result()
        self._made = {place: made for place, made in self._made.items() if place > number}
        return chunk

    def close(self) -> None:
        """Give up what nobody asked for yet."""
        self._pool.shutdown(cancel_futures=True)
