"""A judge on loopback: a real HTTP server that answers as a test tells it to."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PARTS = re.compile(r"<(request|answer|answer_A|answer_B)>\n(.*?)\n</\1>", re.DOTALL)
USAGE = {"prompt_tokens": 100, "completion_tokens": 10}


@dataclass(frozen=True)
class Response:
    """status, headers and body of an answer, after a while; cut: bytes that never come.

    sleep: seconds before it, unless the server is closed meanwhile. drip: seconds between its
    bytes, if above 0."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    sleep: float = 0.0
    cut: int = 0
    drip: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A request: its fields, its key, its number, and how often its question came before."""

    fields: dict[str, Any]
    key: str | None
    number: int
    before: int

    @property
    def question(self) -> str:
        return str(self.fields["messages"][-1]["content"])

    @property
    def parts(self) -> dict[str, str]:
        """request, and answer or answer_A and answer_B, of the default templates."""
        return dict(PARTS.findall(self.question))


Judge = Callable[[Asked], Response]


def said(text: str | None, ending: str = "stop", **rest: Any) -> Response:
    """A whole answer."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": ending}]
    return Response(body=json.dumps({"choices": choices, "usage": USAGE}), **rest)


def longer_wins(asked: Asked) -> Response:
    """A judge without position bias, who has a verdict for everything."""
    a, b = len(asked.parts["answer_A"]), len(asked.parts["answer_B"])
    return said(json.dumps({"winner": "tie" if a == b else "A" if a > b else "B"}))


class JudgeServer:
    """What was asked so far, and how many requests were there at once at most."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.closed = threading.Event()
        self._at_once = 0
        self._lock = threading.Lock()

    def answer(self, fields: dict[str, Any], key: str | None) -> Response:
        with self._lock:
            before = sum(past.fields == fields for past in self.asked)
            asked = Asked(fields, key, len(self.asked), before)
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            response = self.judge(asked)
            self.closed.wait(response.sleep)
            return response
        finally:
            with self._lock:
                self._at_once -= 1


@dataclass(frozen=True)
class Running:
    """A server that is up."""

    server: JudgeServer
    url: str

    @property
    def num_asked(self) -> int:
        return len(self.server.asked)


@contextmanager
def serving(judge: Judge) -> Iterator[Running]:
    """The judge at an address of its own, for as long as this lasts."""
    server = JudgeServer(judge)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the client hung up in the middle, as one that stops does
                self.close_connection = True
                return
            assert self.path.endswith("/v1/chat/completions")  # a whole address through a proxy
            response = server.answer(json.loads(body), self.headers.get("Authorization"))
            sent = response.body.encode()
            try:
                self.send_response(response.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                for name, value in response.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for byte in sent if response.drip else ():
                    self.wfile.write(bytes([byte]))
                    server.closed.wait(response.drip)
                self.wfile.write(b"" if response.drip else sent[: len(sent) - response.cut])
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client had waited long enough
            self.close_connection |= response.cut > 0

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            """A client that hangs up is no error; what the judge raises is."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(*_)

    http = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield Running(server, f"http://127.0.0.1:{http.server_port}/v1")
    finally:
        server.closed.set()
        http.shutdown()
        thread.join()
        http.server_close()
