"""One request to an OpenAI-compatible endpoint, by the client `openai`.

The client's own retries are off: they would not be counted, nor seen by the cache.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from rlhf_lab.rewards.judge.options import EndpointReward
from rlhf_lab.types.errors import UserError

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
        detail = "" if status in (401, 403) else f" {self._public(body)}"
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

    def _public(self, body: str) -> str:
        text = body.replace(self._key, "***") if self._key else body
        return repr(" ".join(text.split())[:300])


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
