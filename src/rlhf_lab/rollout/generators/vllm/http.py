"""HTTP to vLLM servers: all calls of a process are coroutines of one thread."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import ssl
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from rlhf_lab.rollout.generators.vllm.requests import EngineFailure

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

# The launcher of a job sets it for its servers and trainers; empty: any server will do.
RUN_ID = "RLHF_LAB_RUN_ID"
# What servers and trainers of a job share: who has it may load weights and draw samples.
SERVER_KEY = "RLHF_LAB_SERVER_KEY"
KEY_BYTES = 32
SERVED = "rlhf_lab"
# Where a server takes prompts as tokens.
GENERATE = "/inference/v1/generate"


def job_id() -> str:
    """The id that the job's servers and trainers share."""
    return os.environ.get(RUN_ID, "")


def server_key() -> str:
    """The bearer that the job's servers require; "" where none is set."""
    return os.environ.get(SERVER_KEY, "")


def name_at_server(version: str) -> str:
    """A version's name at a server: RUN/12, or 12 without a run id."""
    return f"{job_id()}/{version}" if job_id() else version


def name_in_run(name: str) -> str:
    """A version's name in this run; a name of another run stays as it is."""
    return name.removeprefix(f"{job_id()}/") if job_id() else name


def served_model() -> str:
    """The model name of a server of this run."""
    return name_at_server(SERVED) if job_id() else ""


# A load of weights or a long sample takes long; a server that has ended refuses at once.
ANSWER_SECONDS = 3600.0
LOOK_SECONDS = 5.0
# Without a packet from the server's host, whose kernel answers however busy the server is: reading
# then raises, as behind a cut link.
SILENT_SECONDS = 30
# For a connection without and with unanswered data; not every system has every one.
TCP = {
    "TCP_KEEPIDLE": SILENT_SECONDS // 3,
    "TCP_KEEPALIVE": SILENT_SECONDS // 3,
    "TCP_KEEPINTVL": SILENT_SECONDS // 6,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 1000 * SILENT_SECONDS,
}
OF_SILENT_HOSTS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in TCP.items()
        if hasattr(socket, name)
    ),
]


@functools.cache
def client_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process's calls, in a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="vllm-client", daemon=True).start()
    return loop


_starting = threading.Lock()


def started(call: Coroutine[Any, Any, T]) -> Future[T]:
    """A call that has begun; to cancel its future closes its connection."""
    with _starting:
        loop = client_loop()
    return asyncio.run_coroutine_threadsafe(call, loop)


def at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of calls that are made at the same time."""

    async def gathered() -> list[T]:
        return await asyncio.gather(*calls)

    return started(gathered()).result()


class Server:
    """The server at a base URL, spoken to directly, whatever proxy the environment names.

    Each request has a connection. key: the bearer that it requires, "" for none.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    @functools.cached_property
    def _client(self) -> httpx2.AsyncClient:
        import httpx2  # which options do without

        transport = httpx2.AsyncHTTPTransport(
            # vLLM closes idle connections after 5 s by its clock, which a busy client sees late.
            limits=httpx2.Limits(max_keepalive_connections=0),
            # The machine's certificates, with those of its environment.
            verify=ssl.create_default_context(),
            trust_env=False,
            socket_options=OF_SILENT_HOSTS,
        )
        return httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=SILENT_SECONDS, pool=None),
            transport=transport,
            trust_env=False,
        )

    def is_healthy(self) -> bool:
        """Whether it answers, and its engine lives."""
        return started(self.health()).result()

    async def health(self) -> bool:
        import httpx2

        try:
            reply = await self._client.get(f"{self.url}/health", timeout=LOOK_SECONDS)
        except httpx2.RequestError:
            return False
        return bool(reply.status_code == HTTPStatus.OK)

    def get(self, path: str) -> Any:
        return started(self.ask("GET", path)).result()

    def post(self, path: str, content: Any = None) -> Any:
        return started(self.ask("POST", path, content)).result()

    async def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The answer to a request, from JSON. content: of a POST. Raises EngineFailure."""
        import httpx2

        where = f"{self.url}{path}"
        body = ({} if content is None else content) if method == "POST" else None
        try:
            reply = await self._client.request(method, where, json=body, headers=headers)
        except httpx2.RequestError as error:
            raise EngineFailure(f"{where} does not answer: {error!r}") from error
        if reply.status_code != HTTPStatus.OK:
            failure = EngineFailure(f"{where} refused ({reply.status_code}): {reply.text[:2000]}")
            failure.status = reply.status_code
            raise failure
        try:
            return json.loads(reply.content or b"null")
        except (ValueError, RecursionError) as error:
            raise EngineFailure(f"{where} answers no JSON: {error}") from error

    def close(self) -> None:
        """Close all connections."""
        started(self._client.aclose()).result()
