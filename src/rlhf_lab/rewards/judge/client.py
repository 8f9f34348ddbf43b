"""Requests to a judge's endpoint, through the client `openai`, which sends failed ones again."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any, NamedTuple

import openai

from rlhf_lab.rewards.judge.options import EndpointReward, verdict
from rlhf_lab.rewards.judge.proxies import is_loopback, proxy_of
from rlhf_lab.types.errors import UserError

# The client of HTTP that openai is built on, which is another one in other versions.
http: Any = sys.modules[openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]]
# Statuses below 500 of requests that the client sends again.
RETRIED = (408, 409, 429)
# OpenAI's code of an account without credit, which comes with status 429; waiting does not help.
NO_CREDIT = "insufficient_quota"
# The kinds of failure of answers that were cut, by the endpoint's finish_reason.
CUT = {"length": "cut", "content_filter": "refused"}


class Reply(NamedTuple):
    """What came back. ending: the endpoint's finish_reason."""

    text: str | None
    ending: str
    input_tokens: int
    output_tokens: int


class Failed(http.RequestError):  # type: ignore[misc]
    """A request without a usable answer, which the client sends again. kind: for the counts."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Transfer(openai.DefaultAsyncHttpxClient):  # type: ignore[misc]
    """Sends each request of the client, bounds it as a whole in time, and counts it. An answer
    without a verdict is a failure of its request. counts: added to."""

    def __init__(self, options: EndpointReward, key: str, counts: Counter[str]) -> None:
        # A transport that is given goes through no proxy of the environment.
        direct = {"transport": http.AsyncHTTPTransport()} if is_loopback(options.base_url) else {}
        super().__init__(timeout=options.timeout_s, **direct)
        self._options = options
        self._key = key
        self._counts = counts

    async def send(self, request: Any, **options: Any) -> Any:
        """The response if it is of use, or has a status that the client retries. Raises Failed,
        and UserError for a refusal that no further request changes."""
        self._counts["judge_calls"] += 1
        self._counts["judge_retries"] += request.headers["x-stainless-retry-count"] != "0"
        try:
            async with asyncio.timeout(self._options.timeout_s):
                response = await super().send(request, **options)
            if response.is_success:
                self._count(reply_of(response.text))
                return response
        except (TimeoutError, http.TimeoutException):
            raise self._failed("timeout") from None
        except Failed as failure:
            raise self._failed(failure.kind) from None
        except http.RequestError:
            raise self._failed("connection") from None
        is_final = 400 <= response.status_code < 500 and response.status_code not in RETRIED
        if is_final or NO_CREDIT in response.text:
            raise self._refusal(response.status_code, response.text)
        self._failed(f"status_{response.status_code}")
        return response

    def _failed(self, kind: str) -> Failed:
        self._counts["judge_failures"] += 1
        self._counts[f"judge_failures_{kind}"] += 1
        return Failed(kind)

    def _count(self, reply: Reply) -> None:
        """Count the tokens of a reply. Raises Failed if it has no verdict."""
        self._counts["judge_input_tokens"] += reply.input_tokens
        self._counts["judge_output_tokens"] += reply.output_tokens
        if reply.ending in CUT:
            raise Failed(CUT[reply.ending])
        if reply.text is None:
            raise Failed("refused")
        if verdict(self._options.style, reply.text) is None:
            raise Failed("unreadable")

    def _refusal(self, status: int, body: str) -> UserError:
        """Bodies may quote the key, so it is cut out."""
        options = self._options
        public = body.replace(self._key, "***") if self._key else body
        detail = "" if status in (401, 403) else f" {' '.join(public.split())[:300]!r}"
        proxy = "" if is_json(body) else proxy_of(options.base_url)
        return UserError(
            f"reward.base_url={options.base_url} with reward.model={options.model}: the judge's "
            f"endpoint answered {status}{detail}: {self._remedy(status, proxy)}"
        )

    def _remedy(self, status: int, proxy: str) -> str:
        variable = self._options.key_variable
        if proxy:
            host = http.URL(self._options.base_url).host
            return (
                f"the answer is no API's, and the environment sends requests through the proxy "
                f"{proxy}: add {host} to NO_PROXY, or let the proxy pass it"
            )
        if status in (401, 403):
            where = f"the variable {variable}" if variable else "a variable and name it"
            return f"put a key that is allowed to use this model into {where} (reward.key_variable)"
        if status == 404:
            return "correct reward.base_url (mostly it ends in /v1) or reward.model"
        if status == 429:
            return "the account has no credit left; add some, or choose another endpoint"
        return "correct reward.model, reward.max_tokens, reward.token_limit or reward.extra"


class Connection:
    """An open connection to the endpoint; `async with` closes it. counts: added to."""

    def __init__(self, options: EndpointReward, key: str, counts: Counter[str]) -> None:
        self._options = options
        self._headers = {} if key else {"Authorization": openai.Omit()}
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url,
            api_key=key or "none",
            max_retries=options.retries,
            http_client=Transfer(options, key, counts),
        )

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, messages: list[dict[str, str]]) -> str | None:
        """The text of an answer with a verdict; None if no request brought one. Raises UserError
        if none will."""
        fields = {name: value for name, value in self._options.request.items() if name != "model"}
        try:
            raw = await self._client.chat.completions.with_raw_response.create(
                model=self._options.model,
                messages=messages,
                extra_body=fields,
                extra_headers=self._headers,
            )
        except openai.APIError:  # counted
            return None
        return reply_of(raw.http_response.text).text


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


def is_json(body: str) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
