"""A server's door: what comes without the key of its job is refused."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rlhf_lab.rollout.generators.vllm.http import SERVER_KEY

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
# Whether the server lives is no secret, and is looked at before a run knows whose server it is.
OPEN = "/health"
UNAUTHORIZED = 401


class RequireKey:
    """ASGI middleware, for `--middleware` of vLLM's server: all requests but that of OPEN must have
    the bearer RLHF_LAB_SERVER_KEY. vLLM's `--api-key` leaves the paths that load weights open."""

    def __init__(self, app: App) -> None:
        if not (key := os.environ.get(SERVER_KEY, "")):
            raise ValueError(f"set {SERVER_KEY}, which this server's clients must have")
        self._app = app
        self._wanted = f"Bearer {key}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        is_open = scope["type"] == "lifespan" or scope["path"] == OPEN
        if is_open or hmac.compare_digest(given, self._wanted):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": UNAUTHORIZED, "headers": []})
            await send({"type": "http.response.body", "body": b"the key is missing, or another"})
        else:
            await send({"type": "websocket.close"})
