"""Coroutines of reward functions: those of a chunk wait at the same time.

Apart from the rest, since asyncio takes a third of a worker's start, and few functions need it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rlhf_lab.rewards.worker_child import Item, failure, late


@functools.cache
def runner() -> asyncio.Runner:
    """One event loop for all calls of a worker, to which clients that a module keeps belong."""
    return asyncio.Runner()


def result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns."""
    return runner().run(coroutine)


def results(
    start: Callable[[Item], Coroutine[Any, Any, Any]],
    items: Sequence[Item],
    seconds: float,
    name: str,
) -> list[Any]:
    """What the coroutine of each item returns, or its failure. seconds: the limit of each; 0 for
    none. name: of what is called, in messages."""

    async def one(item: Item) -> Any:
        limit = asyncio.timeout(seconds or None)
        try:
            async with limit:
                return await start(item)
        except BaseException as error:
            return late(item, seconds) if limit.expired() else failure(item, name, error)

    async def every() -> list[Any]:
        return list(await asyncio.gather(*map(one, items)))

    return runner().run(every())
