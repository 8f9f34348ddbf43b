"""Chunks prepared in advance, so that the trainer never waits while prompts are encoded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from rlhf_lab.types.rollouts import Chunk


class ChunkPrefetcher:
    """Call it like `make`: it returns chunk n, and prepares the next `count` chunks in a thread; of
    none, it makes chunk n itself."""

    def __init__(self, make: Callable[[int], Chunk], count: int) -> None:
        self._make = make
        self._count = count
        self._futures: dict[int, Future[Chunk]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prompts")

    def __call__(self, number: int) -> Chunk:
        if not self._count:
            return self._make(number)
        for n in range(number, number + 1 + self._count):
            if n not in self._futures:
                self._futures[n] = self._pool.submit(self._make, n)
        chunk = self._futures.pop(number).result()
        self._futures = {n: future for n, future in self._futures.items() if n > number}
        return chunk

    def close(self) -> None:
        """Cancel what is not prepared yet."""
        self._pool.shutdown(cancel_futures=True)
