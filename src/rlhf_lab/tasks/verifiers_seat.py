"""The policy's seat in an environment of verifiers, in place of the package's agents.

The package's own agents start a program for each episode, which asks a server for completions. Here
the actions come from the run's generator: a seat hands the environment's messages over, and records
the conversation in the package's trace, which its rewards and metrics read.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rlhf_lab.tasks.exchange import Exchange
from rlhf_lab.types.errors import UserError


@dataclass
class Seat:
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
        async with self.interaction(task, **borrowed) as talk:
            await talk.turn()
        return talk.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **borrowed: Any) -> AsyncIterator[Talk]:
        """A conversation, which is scored by the task's own rewards at its end."""
        require_plain(task, self.place)
        if any(borrowed.values()):
            raise unsupported(self.place, f"lends its agent {', '.join(borrowed)}")
        talk = Talk(self, new_trace(task, self))
        yield talk
        talk.trace.stop("user_closed")
        await task.score(talk.trace)
        talk.trace.ok = True
        self.traces.append(talk.trace)


@dataclass
class Talk:
    """A conversation: the environment is the user."""

    seat: Seat
    trace: Any
    _messages: list[Any] = field(default_factory=list)

    async def turn(self, message: Any = None) -> Any:
        """The policy's answer to a message, or to the task's prompt."""
        from verifiers.v1.agent import Segment
        from verifiers.v1.types import AssistantMessage

        most = self.seat.spec.max_turns
        if most is not None and self.trace.num_turns >= most:
            self.trace.stop("max_turns")
            return Segment(messages=[], terminated=True)
        read = [*self._opening(message), *typed_messages(message)]
        reply = await self.seat.exchange.ask(text_of(read, self.seat.place))
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


def new_trace(task: Any, seat: Seat) -> Any:
    """The package's record of a conversation, before it begins."""
    from verifiers.v1.state import state_cls
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    recorded = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    agent = AgentInfo(config=seat.spec, name=seat.name, trainable=seat.trainable)
    return Trace(task=recorded, state=state_cls(type(task))(), agent=agent)


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
    """The text of a message."""
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
