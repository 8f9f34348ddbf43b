"""One vLLM server's HTTP, as far as a run needs it."""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from rlhf_lab.rollout.generators.vllm.requests import EngineFailure

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
# Without a packet from the server's host, whose kernel answers however busy the server is.
SILENT_SECONDS = 30
# For a connection without and with unanswered data; not every system has every one.
TCP = {
    "TCP_KEEPIDLE": SILENT_SECONDS // 3,
    "TCP_KEEPALIVE": SILENT_SECONDS // 3,
    "TCP_KEEPINTVL": SILENT_SECONDS // 6,
    "TCP_KEEPCNT": 4,
    "TCP_USER_TIMEOUT": 1000 * SILENT_SECONDS,
}
LOOK_SECONDS = 5.0
# vLLM closes connections that were idle for 5 s.
IDLE_SECONDS = 3.0


class Server:
    """The server at a base URL, spoken to directly, whatever proxy the environment names.

    Threads may ask it at the same time. Connections are kept and used again. key: the bearer that
    it requires, "" for none.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        parts = urlsplit(self.url)
        self._address = (parts.hostname or "", parts.port)
        self._base = parts.path
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._idle: deque[tuple[float, HTTPConnection]] = deque()
        self._is_closed = False

    def is_healthy(self) -> bool:
        """Whether it answers, and its engine lives."""
        connection = self._connect(*self._address, timeout=LOOK_SECONDS)
        try:
            connection.request("GET", f"{self._base}/health")
            return bool(connection.getresponse().status == 200)
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None, {})

    def post(self, path: str, content: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        body = json.dumps({} if content is None else content).encode()
        return self._ask(
            "POST", path, body, {"Content-Type": "application/json", **(headers or {})}
        )

    def close(self) -> None:
        """Close all connections, those in use once they have their answer."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        where = f"{self.url}{path}"
        connection = self._connection()
        try:
            if connection.sock is None:
                open_connection(connection)
            connection.request(method, f"{self._base}{path}", body, {**self._headers, **headers})
            reply = connection.getresponse()
            status, closes, content = reply.status, reply.will_close, reply.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise EngineFailure(f"{where} does not answer: {error!r}") from error
        if closes or self._is_closed:
            connection.close()
        else:
            self._idle.append((monotonic(), connection))
        if status != 200:
            text = content.decode("utf-8", "replace")
            failure = EngineFailure(f"{where} refused ({status}): {text[:2000]}")
            failure.status = status
            raise failure
        try:
            return json.loads(content or b"null")
        except (ValueError, RecursionError) as error:
            raise EngineFailure(f"{where} answers no JSON: {error}") from error

    def _connection(self) -> HTTPConnection:
        """One that was used just now, or a new one."""
        try:
            used, connection = self._idle.pop()
        except IndexError:
            return self._connect(*self._address, timeout=SILENT_SECONDS)
        if monotonic() - used < IDLE_SECONDS:
            return connection
        # The others have been idle for longer.
        connection.close()
        self._close_idle()
        return self._connect(*self._address, timeout=SILENT_SECONDS)


def open_connection(connection: HTTPConnection) -> None:
    """Connect. Reading then raises OSError once the server's host has been silent for too long, as
    behind a cut link, and not while the server works."""
    connection.connect()
    connection.sock.settimeout(ANSWER_SECONDS)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP.items():
        if hasattr(socket, name):
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
