"""Run an environment that is a coroutine, and exchange actions and observations with it.

A process has one event loop for them, which runs while an environment is at work and rests while
the policy writes.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any

from rlhf_lab.tasks.global_random import ONE_AT_A_TIME


class Exchange:
    """One episode. What it awaits besides replies must end by itself."""

    def __init__(self, make: Callable[[Exchange], Coroutine[Any, Any, None]]) -> None:
        self._loop = loop_of(os.getpid())
        self._asked: asyncio.Future[str] = self._loop.create_future()
        self._reply: asyncio.Future[str] = self._loop.create_future()
        self._task = self._loop.create_task(make(self))

    async def ask(self, message: str) -> str:
        """Within the episode: show a message, and wait for the reply."""
        self._reply = self._loop.create_future()
        self._asked.set_result(message)
        return await self._reply

    def begin(self) -> str | None:
        """The first message; None if the episode ends without. Raises what the episode raises."""
        return self._advanced()

    def answer(self, reply: str) -> str | None:
        """The message that follows a reply; None at the episode's end. Raises what the episode
        raises."""
        self._asked = self._loop.create_future()
        self._reply.set_result(reply)
        return self._advanced()

    def abandon(self) -> None:
        """End the episode where it stands. May be called from anywhere, as when memory is freed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _advanced(self) -> str | None:
        with ONE_AT_A_TIME:
            self._loop.run_until_complete(self._first())
        if self._asked.done():
            return self._asked.result()
        self._asked.cancel()
        self._task.result()
        return None

    async def _first(self) -> None:
        """Wait for the next message or the end."""
        both: set[asyncio.Future[Any]] = {self._task, self._asked}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)


@functools.cache
def loop_of(process: int) -> asyncio.AbstractEventLoop:
    """The loop of a process, closed at its end."""
    loop = asyncio.new_event_loop()
    atexit.register(close, loop, process)
    return loop


def close(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """End what was abandoned, and close the loop, in the process that made it."""
    if os.getpid() != process:
        return
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
