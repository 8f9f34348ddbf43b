"""One vLLM server's HTTP, as far as a run needs it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from rlhf_lab.rollout.generators.vllm.requests import EngineFailure

# A load of weights or a long sample takes long; a server that has ended refuses at once.
ANSWER_SECONDS = 3600.0
LOOK_SECONDS = 5.0
# Servers are spoken to directly, whatever proxy the environment names.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Server:
    """The server at a base URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def is_healthy(self) -> bool:
        """Whether it answers, and its engine lives."""
        try:
            with OPENER.open(f"{self.url}/health", timeout=LOOK_SECONDS) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(f"{self.url}{path}"))

    def post(self, path: str, content: Any = None) -> Any:
        body = json.dumps({} if content is None else content).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(f"{self.url}{path}", body, headers))

    def _ask(self, request: urllib.request.Request) -> Any:
        try:
            with OPENER.open(request, timeout=ANSWER_SECONDS) as reply:
                return json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            raise EngineFailure(
                f"{request.full_url} refused ({error.code}): {text[:2000]}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise EngineFailure(f"{request.full_url} answers no JSON: {error}") from error
        except OSError as error:
            raise EngineFailure(f"{request.full_url} does not answer: {error}") from error
