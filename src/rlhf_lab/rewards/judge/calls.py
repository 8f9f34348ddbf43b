"""Many questions to a judge at once: cache, concurrency, retries, and their cost."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from rlhf_lab.rewards.judge.cache import JudgeCache
from rlhf_lab.rewards.judge.client import Connection, Failed, Reply, connected
from rlhf_lab.rewards.judge.options import EndpointReward
from rlhf_lab.rewards.judge.prompts import verdict
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.randomness import uniforms

BEAT_SECONDS = 1.0
# Doubling stops here, long after the longest pause.
MOST_DOUBLINGS = 30
# The kinds of failure of answers that were cut, by the endpoint's finish_reason.
CUT = {"length": "cut", "content_filter": "refused"}


class JudgeCalls:
    """Answers to questions, each of which is sent once however often it occurs.

    A question is the text for the judge; its answer is a number (see prompts.verdict).
    """

    def __init__(self, options: EndpointReward, key: str, cache: JudgeCache) -> None:
        self._options = options
        self._key = key
        self._cache = cache
        self._counts: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._charged = 0

    def answers(self, groups: Sequence[Sequence[str]]) -> dict[str, float]:
        """The answers that could be had. groups: questions that are of use together only, so that
        one failure has all of its group's open questions sent again."""
        answers: dict[str, float] = {}
        for question in dict.fromkeys(question for group in groups for question in group):
            if (answer := self._cached(question)) is not None:
                answers[question] = answer
        self._counts["judge_cached"] += sum(map(len, groups))
        for attempt in range(1 + self._options.group_retries):
            left = [group for group in groups if not all(question in answers for question in group)]
            missing = [q for group in left for q in group if q not in answers]
            if not missing:
                break
            self._counts["judge_group_retries"] += len(left) if attempt else 0
            unique = list(dict.fromkeys(missing))
            self._counts["judge_cached"] -= 0 if attempt else len(unique)
            run(self._ask_all(unique, answers))
        return answers

    def drain(self) -> Mapping[str, int]:
        """Counts since the last call. Money is rounded over the whole, so that no call is lost."""
        options, tokens = self._options, self._tokens
        cost = round(
            tokens["input"] * options.input_price + tokens["output"] * options.output_price
        )
        counts = {
            "judge_calls": 0,
            "judge_retries": 0,
            "judge_failures": 0,
            "judge_unanswered": 0,
            "judge_group_retries": 0,
            "judge_cached": 0,
            "judge_cache_damaged": self._cache.num_damaged,
            "judge_input_tokens": 0,
            "judge_output_tokens": 0,
            "judge_microdollars": cost - self._charged,
            **self._counts,
        }
        self._charged = cost
        self._cache.num_damaged = 0
        self._counts.clear()
        return counts

    def _messages(self, question: str) -> list[dict[str, str]]:
        # Half of a surrogate pair, which JSON can spell and UTF-8 cannot, would stop the client.
        sendable = question.encode("utf-8", "replace").decode("utf-8")
        messages = [{"role": "user", "content": sendable}]
        system = self._options.system
        return [{"role": "system", "content": system}, *messages] if system else messages

    def _name(self, question: str) -> str:
        """The question's name in the cache: of everything that decides its answer."""
        request = {**self._options.request, "messages": self._messages(question)}
        return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()

    def _cached(self, question: str) -> float | None:
        name = self._name(question)
        if (text := self._cache.read(name)) is None:
            return None
        answer = verdict(self._options.style, text)
        if answer is None:  # cached by a version that read answers otherwise
            self._cache.forget(name)
        return answer

    async def _ask_all(self, questions: Iterable[str], answers: dict[str, float]) -> None:
        limit = asyncio.Semaphore(self._options.concurrency)
        async with (
            connected(self._options, self._key) as connection,
            alive(),
            asyncio.TaskGroup() as tasks,
        ):
            for question in questions:
                tasks.create_task(self._answer(connection, limit, question, answers))

    async def _answer(
        self,
        connection: Connection,
        limit: asyncio.Semaphore,
        question: str,
        answers: dict[str, float],
    ) -> None:
        """Ask until there is an answer. A pause keeps its slot, so that an endpoint that sets one
        gets fewer requests."""
        name = self._name(question)
        async with limit:
            for attempt in range(1 + self._options.retries):
                self._counts["judge_retries"] += int(attempt > 0)
                try:
                    reply = await self._try(connection, question)
                except Failed as failure:
                    self._counts["judge_failures"] += 1
                    self._counts[f"judge_failures_{failure.kind}"] += 1
                    if attempt < self._options.retries:
                        await asyncio.sleep(self._pause(name, attempt, failure.pause))
                    continue
                answer = verdict(self._options.style, self._cache.settle(name, reply))
                assert answer is not None, "only answers that can be read are kept"
                answers[question] = answer
                return
        self._counts["judge_unanswered"] += 1

    async def _try(self, connection: Connection, question: str) -> str:
        """One request; the text of an answer that can be read."""
        self._counts["judge_calls"] += 1
        reply = await connection.ask(self._messages(question))
        self._charge(reply)
        if reply.ending in CUT:
            raise Failed(CUT[reply.ending])
        if reply.text is None:
            raise Failed("refused")
        if verdict(self._options.style, reply.text) is None:
            raise Failed("unreadable")
        return reply.text

    def _charge(self, reply: Reply) -> None:
        for side, amount in (("input", reply.input_tokens), ("output", reply.output_tokens)):
            self._tokens[side] += amount
            self._counts[f"judge_{side}_tokens"] += amount

    def _pause(self, name: str, attempt: int, retry_after: float) -> float:
        """Seconds before the next try: half to one and a half of a doubling time, by the question,
        so that questions that failed together do not come back together."""
        spread = 0.5 + float(uniforms(int(name[:15], 16), attempt, 0, 1)[0])
        own = self._options.backoff_s * 2.0 ** min(attempt, MOST_DOUBLINGS) * spread
        return min(max(own, retry_after), self._options.max_backoff_s)


def run(asking: Coroutine[object, object, None]) -> None:
    """Run it in a loop of its own; of the errors of many questions, raise the first."""
    try:
        asyncio.run(asking)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@asynccontextmanager
async def alive() -> AsyncIterator[None]:
    """Beat while questions are out: every wait of theirs has an end, so none of it is a hang."""

    async def beats() -> None:
        while True:
            beat()
            await asyncio.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beats())
    try:
        yield
    finally:
        task.cancel()
