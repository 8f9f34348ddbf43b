"""The policy as the agent of an environment of verifiers.

The package's agents start a program for each episode, which asks a server for completions. Here the
actions come from the run's generator: an agent passes the environment's messages on, and records
the conversation in the package's trace, which its rewards and metrics read. The environment is a
coroutine; a process has one event loop, which runs while environments work and rests while the
policy writes.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.tasks.optional_packages import ONE_AT_A_TIME
from rlhf_lab.types.errors import UserError


class Exchange:
    """An episode of a coroutine that waits for replies; what else it awaits must end by itself."""

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
        """End the episode now. May be called from anywhere, as when memory is freed."""
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


@dataclass
class PolicyAgent:
    """An agent of the environment. spec: its options. place: of it, for errors. traces: of its
    conversations, as they end."""

    name: str
    spec: Any
    exchange: Exchange
    place: str
    traces: list[Any]
    trainable: bool = True

    async def run(self, task: Any, **borrowed: Any) -> Any:
        """One answer to a task's prompt. Returns its trace."""
        async with self.interaction(task, **borrowed) as dialogue:
            await dialogue.turn()
        return dialogue.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **borrowed: Any) -> AsyncIterator[Dialogue]:
        """A conversation, which is scored by the task's own rewards at its end."""
        require_plain(task, self.place)
        if any(borrowed.values()):
            raise unsupported(self.place, f"lends its agent {', '.join(borrowed)}")
        dialogue = Dialogue(self, new_trace(task, self))
        yield dialogue
        dialogue.trace.stop("user_closed")
        await task.score(dialogue.trace)
        dialogue.trace.ok = True
        self.traces.append(dialogue.trace)


@dataclass
class Dialogue:
    """A conversation: the environment is the user."""

    agent: PolicyAgent
    trace: Any
    _messages: list[Any] = field(default_factory=list)

    async def turn(self, message: Any = None) -> Any:
        """The policy's answer to a message, or to the task's prompt."""
        from verifiers.v1.agent import Segment
        from verifiers.v1.types import AssistantMessage

        most = self.agent.spec.max_turns
        if most is not None and self.trace.num_turns >= most:
            self.trace.stop("max_turns")
            return Segment(messages=[], terminated=True)
        read = [*self._opening(message), *typed_messages(message)]
        reply = await self.agent.exchange.ask(text_of(read, self.agent.place))
        answer = AssistantMessage(content=reply)
        record(self.trace, [*self._messages, *read], answer)
        self._messages += [*read, answer]
        return Segment(messages=[answer])

    def _opening(self, message: Any) -> list[Any]:
        """System prompt and prompt of the task, before the first message."""
        from verifiers.v1.types import SystemMessage, UserMessage

        data = self.trace.task.data
        if self._messages:
            return []
        if (message is None) == (data.prompt is None):
            raise ValueError("a prompt or a first message opens a conversation, and not both")
        system = [SystemMessage(content=data.system_prompt)] if data.system_prompt else []
        if isinstance(data.prompt, str):
            return [*system, UserMessage(content=data.prompt)]
        return [*system, *(data.prompt or ())]


def new_trace(task: Any, agent: PolicyAgent) -> Any:
    """The package's record of a conversation, before it begins."""
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    recorded = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    info = AgentInfo(config=agent.spec, name=agent.name, trainable=agent.trainable)
    return Trace(task=recorded, state=state_cls(type(task))(), agent=info)


def record(trace: Any, messages: list[Any], answer: Any) -> None:
    """Add a turn to the package's record."""
    from verifiers.v1 import graph
    from verifiers.v1.types import Response

    response = Response(id="", created=0, model="", message=answer, finish_reason="stop")
    graph.prepare_turn(trace, messages).commit(response)


def typed_messages(message: Any) -> list[Any]:
    """What an environment passes to `turn` as the package's messages."""
    from verifiers.v1.dialects import parse_message
    from verifiers.v1.types import UserMessage

    if message is None:
        return []
    if isinstance(message, str):
        return [UserMessage(content=message)]
    return [parse_message(one) if isinstance(one, dict) else one for one in message]


def text_of(messages: list[Any], place: str) -> str:
    """What the policy reads. Raises UserError for pictures."""
    texts = []
    for message in messages:
        if isinstance(message.content, list) and any(p.type != "text" for p in message.content):
            raise unsupported(place, "shows pictures")
        texts.append(content_of(message))
    return "\n\n".join(text for text in texts if text)


def content_of(message: Any) -> str:
    from verifiers.v1.types import content_text

    return str(content_text(message.content))


def require_plain(task: Any, place: str) -> None:
    """Refuse a task that needs more than a conversation."""
    from verifiers.v1 import Task
    from verifiers.v1.utils.decorators import discover_decorated

    kind = type(task)
    needs = (
        (kind.NEEDS_CONTAINER or task.data.image, "runs in a container"),
        (kind.toolsets(task.config), "has tools on servers (toolsets)"),
        (kind.setup is not Task.setup, "prepares a runtime (setup)"),
        (kind.finalize is not Task.finalize, "ends in a runtime (finalize)"),
        (task.hooks("stop"), "stops conversations itself (stop)"),
        (discover_decorated(task, "intercept"), "changes messages (intercept)"),
        (task.config.judges, "asks judges"),
        (reads_runtime(task), "scores what is in a runtime"),
    )
    for is_needed, what in needs:
        if is_needed:
            raise unsupported(place, what)


def reads_runtime(task: Any) -> bool:
    """Whether a reward or metric must have the machine that an agent worked on."""
    hooks = [*task.hooks("metric"), *task.hooks("reward")]
    found = [inspect.signature(hook).parameters.get("runtime") for hook in hooks]
    return any(one is not None and one.default is inspect.Parameter.empty for one in found)


def unsupported(place: str, what: str) -> UserError:
    """What to raise where an environment needs more than this adapter has."""
    return UserError(
        f"{place} {what}, and only conversations in text are played here: choose an environment "
        "of verifiers whose rewards read the conversation alone"
    )
