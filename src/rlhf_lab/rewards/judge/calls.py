"""Many questions to a judge at once: cache, concurrency, and their cost."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.rewards.judge.options import EndpointReward, verdict
from rlhf_lab.runs.disk import atomic_write, discard
from rlhf_lab.runs.reading import content
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat

if TYPE_CHECKING:
    from rlhf_lab.rewards.judge.client import Connection


class JudgeCache:
    """One small file an answer, whole or not there. Anything else in its place counts as damaged
    and is written anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.num_damaged = 0

    def read(self, key: str) -> str | None:
        """The answer to a question, if it is there and whole."""
        if not os.path.lexists(self._path(key)):
            return None
        text = self._text(key)
        if text is None:
            self.num_damaged += 1
        return text

    def settle(self, key: str, text: str) -> str:
        """Keep an answer. If another process was first, its answer is the one that counts."""
        existing = self._text(key)
        if existing is not None:
            return existing
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(
                f"reward.cache={self._folder}: {path.parent} is no folder: move it away"
            ) from error
        if path.is_dir():
            discard(path)
        atomic_write(path, json.dumps({"key": key, "answer": text, "digest": digest(key + text)}))
        return text

    def forget(self, key: str) -> None:
        """Remove an answer that is of no use."""
        discard(self._path(key))
        self.num_damaged += 1

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"

    def _text(self, key: str) -> str | None:
        # By json's own parser: an answer may have half a character, which the typed one refuses.
        try:
            entry: Any = json.loads(content(self._path(key)))
            text = entry["answer"]
            is_whole = entry["key"] == key and entry["digest"] == digest(key + text)
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        return str(text) if is_whole else None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


BEAT_SECONDS = 1.0


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

    def answers(self, questions: Sequence[str]) -> dict[str, float]:
        """The answers that could be had."""
        unique = dict.fromkeys(questions)
        known = {question: self._cached(question) for question in unique}
        answers = {question: answer for question, answer in known.items() if answer is not None}
        missing = [question for question in unique if question not in answers]
        self._counts["judge_cached"] += len(questions) - len(missing)
        if missing:
            run(self._ask_all(missing, answers))
        return answers

    def drain(self) -> Mapping[str, int]:
        """Counts since the last call. Money is rounded over the whole, so that no call is lost."""
        options, tokens = self._options, self._tokens
        for side in ("input", "output"):
            tokens[side] += self._counts[f"judge_{side}_tokens"]
        cost = round(
            tokens["input"] * options.input_price + tokens["output"] * options.output_price
        )
        counts = {
            "judge_calls": 0,
            "judge_retries": 0,
            "judge_failures": 0,
            "judge_unanswered": 0,
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
        from rlhf_lab.rewards.judge.client import Connection  # an extra, which imports slowly

        limit = asyncio.Semaphore(self._options.concurrency)
        async with (
            Connection(self._options, self._key, self._counts) as connection,
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
        """Ask. The pauses between requests keep their slot, so that an endpoint that sets one gets
        fewer requests."""
        async with limit:
            reply = await connection.ask(self._messages(question))
        if reply is None:
            self._counts["judge_unanswered"] += 1
            return
        answer = verdict(self._options.style, self._cache.settle(self._name(question), reply))
        assert answer is not None, "only answers that can be read are kept"
        answers[question] = answer


def run(asking: Coroutine[object, object, None]) -> None:
    """Run it in a new event loop; of the errors of many questions, raise the first."""
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
