"""Many questions to a judge at once: requests, cache, concurrency, retries, and their cost.

Requests go through the client `openai`, whose own retries are off: they would not be counted, nor
seen by the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from rlhf_lab.rewards.judge.options import EndpointReward, verdict
from rlhf_lab.runs.disk import atomic_write, discard
from rlhf_lab.runs.reading import content
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.randomness import uniforms


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


RETRIED = (408, 409, 425, 429)
# OpenAI's code of an account without credit, which comes with status 429; waiting does not help.
NO_CREDIT = "insufficient_quota"


@dataclass(frozen=True)
class Reply:
    """What came back. ending: the endpoint's finish_reason."""

    text: str | None
    ending: str
    input_tokens: int
    output_tokens: int


class Failed(Exception):
    """A request without a usable answer. kind: for the counts; pause: seconds that
    Retry-After sets."""

    def __init__(self, kind: str, pause: float = 0.0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.pause = pause


class Connection:
    """An open connection to the endpoint."""

    def __init__(self, options: EndpointReward, key: str, client: Any, without_key: Any) -> None:
        self._options = options
        self._key = key
        self._client = client
        self._headers = {} if key else {"Authorization": without_key}

    async def ask(self, messages: list[dict[str, str]]) -> Reply:
        """One answer, or Failed if another try may bring it, or UserError if none will."""
        import openai

        fields = {name: value for name, value in self._options.request.items() if name != "model"}
        try:
            async with asyncio.timeout(self._options.timeout_s):
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=self._options.model,
                    messages=messages,
                    extra_body=fields,
                    extra_headers=self._headers,
                )
        except (TimeoutError, openai.APITimeoutError):
            raise Failed("timeout") from None
        except openai.APIStatusError as error:
            response = error.response
            raise self._refusal(response.status_code, response.headers, response.text) from None
        except openai.APIConnectionError:
            raise Failed("connection") from None
        return reply_of(raw.http_response.text)

    def _refusal(self, status: int, headers: Mapping[str, str], body: str) -> Exception:
        """What a status other than success means. Bodies may quote the key, so it is cut out."""
        is_final = 400 <= status < 500 and status not in RETRIED
        if not is_final and NO_CREDIT not in body:
            return Failed(f"status_{status}", retry_after(headers))
        options = self._options
        public = body.replace(self._key, "***") if self._key else body
        detail = "" if status in (401, 403) else f" {' '.join(public.split())[:300]!r}"
        return UserError(
            f"reward.base_url={options.base_url} with reward.model={options.model}: the judge's "
            f"endpoint answered {status}{detail}: {self._remedy(status)}"
        )

    def _remedy(self, status: int) -> str:
        variable = self._options.key_variable
        if status in (401, 403):
            where = f"the variable {variable}" if variable else "a variable and name it"
            return f"put a key that is allowed to use this model into {where} (reward.key_variable)"
        if status == 404:
            return "correct reward.base_url (mostly it ends in /v1) or reward.model"
        if status == 429:
            return "the account has no credit left; add some, or choose another endpoint"
        return "correct reward.model, reward.max_tokens, reward.token_limit or reward.extra"


@asynccontextmanager
async def connected(options: EndpointReward, key: str) -> AsyncIterator[Connection]:
    """A connection that is closed on leaving."""
    import openai

    client = openai.AsyncOpenAI(
        base_url=options.base_url,
        api_key=key or "none",
        max_retries=0,
        timeout=options.timeout_s,
    )
    async with client:
        yield Connection(options, key, client, openai.Omit())


def reply_of(body: str) -> Reply:
    """The answer in a response's body, or Failed("malformed")."""
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        message = choice["message"]
        usage = data.get("usage") or {}
        text = None if message.get("refusal") else message.get("content")
        tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise Failed("malformed") from None
    return Reply(text if isinstance(text, str) else None, str(choice.get("finish_reason")), *tokens)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float:
    """The pause in seconds that the header Retry-After sets, as a number or a date; 0 for none."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now()
        except (ValueError, TypeError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


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
        for side, amount in (("input", reply.input_tokens), ("output", reply.output_tokens)):
            self._tokens[side] += amount
            self._counts[f"judge_{side}_tokens"] += amount
        if reply.ending in CUT:
            raise Failed(CUT[reply.ending])
        if reply.text is None:
            raise Failed("refused")
        if verdict(self._options.style, reply.text) is None:
            raise Failed("unreadable")
        return reply.text

    def _pause(self, name: str, attempt: int, retry_after: float) -> float:
        """Seconds before the next try: half to one and a half of a doubling time, by the question,
        so that questions that failed together do not come back together."""
        spread = 0.5 + float(uniforms(int(name[:15], 16), attempt, 0, 1)[0])
        own = self._options.backoff_s * 2.0 ** min(attempt, MOST_DOUBLINGS) * spread
        return min(max(own, retry_after), self._options.max_backoff_s)


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
