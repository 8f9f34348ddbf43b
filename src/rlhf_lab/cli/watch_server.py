"""The page of `rlhf-lab watch --web`: served on this machine alone, read only, with nothing loaded
from elsewhere.

A browser could be made to send requests here under another name (DNS rebinding), so a request for
any host but the loopback address is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from rlhf_lab.cli.watch import Source, WatchedRun
from rlhf_lab.runs.live.files import RoundRow
from rlhf_lab.runs.live.lines import phase_name
from rlhf_lab.runs.live.state import WINDOW, LiveState, RoundWindow, RunFollower
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.job_progress import cells
from rlhf_lab.types.errors import UserError

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
PAGE = Path(__file__).with_name("watch_page.html")
# Points of a curve; a screen has no more.
MOST_POINTS = 400
MOST_CURVES = 24
# Rounds before a round that its window may need.
REACH = WINDOW + 1
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def serve(source: Source, port: int, console: Console) -> None:
    """Serve the page until Ctrl-C. Raises UserError if the port is taken."""
    with server_of(source, port) as server:
        address = f"http://{LOOPBACK}:{server.server_port}/"
        console.print(f"watch: {address} (Ctrl-C ends it; the run goes on)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def server_of(source: Source, port: int) -> PageServer:
    """The server, which listens already."""
    try:
        return PageServer(source, port)
    except OSError as error:
        raise UserError(
            f"--port {port} cannot be listened at ({error.strerror}): pass another, or none"
        ) from error


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, source: Source, port: int) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self._source = source
        # Followers remember where they have read to.
        self._lock = Lock()

    def state(self) -> bytes:
        """The JSON that the page requests every second."""
        with self._lock:
            value = state_of(self._source)
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of two addresses."""

    server: PageServer
    server_version = "rlhf-lab"
    sys_version = ""
    # After so many seconds an idle connection of a browser frees its thread.
    timeout = 30

    def do_GET(self) -> None:
        # What a browser sends that was given the address itself.
        port = self.server.server_port
        allowed = [*(f"{host}:{port}" for host in HOSTS), *(HOSTS if port == 80 else ())]
        if self.headers.get("Host", "") not in allowed:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"unknown host: open the address\n")
            return
        address = urlsplit(self.path).path
        if address == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", PAGE.read_bytes())
        elif address == "/state.json":
            self._answer(HTTPStatus.OK, "application/json", self.server.state())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found: open /\n")

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a page sends a request every second."""


def state_of(source: Source) -> dict[str, Any]:
    """All that the page draws."""
    if isinstance(source, WatchedRun):
        state = source.follower.view()
        value = run_value(state, source.follower)
        return {"kind": "run", "is_open": state.is_running, "runs": [value], "jobs": []}
    rows = source.jobs.read()
    begun = [row for row in rows if row.live is not None]
    chosen = sorted(begun, key=lambda row: not row.is_open)[:MOST_CURVES]
    return {
        "kind": "sweep",
        "name": source.name,
        "is_open": not source.is_over(),
        "left": source.jobs.seconds_left(rows),
        "runs": [
            run_value(row.live, source.jobs.followers[row.name]) | {"name": row.name}
            for row in begun
            if row in chosen and row.live is not None
        ],
        "jobs": [cells(row) for row in rows],
    }


def run_value(state: LiveState, follower: RunFollower) -> dict[str, Any]:
    known = asdict(state)
    for name in ("lag_rounds", "lag_updates"):
        known[name] = {str(lag): count for lag, count in known[name].items()}
    known["phase"] = phase_name(state.phase, state.generators)
    return known | {"curves": curves(follower.rows, state.generators)}


def curves(rows: Sequence[RoundRow], generators: int) -> Mapping[str, list[float | None]]:
    """The curves over rounds, thinned to MOST_POINTS. Rates and shares are those of the window that
    ends at the round."""
    step = max(1, math.ceil(len(rows) / MOST_POINTS))
    ends = sorted({*range(len(rows) - 1, -1, -step)})
    found: dict[str, list[float | None]] = {"round": [float(rows[end].step + 1) for end in ends]}
    windows = [RoundWindow(rows[max(0, end - REACH) : end + 1]) for end in ends]
    for name in ("reward", "kl", "entropy", "length", "grad_norm", "lag_updates", "lag_rounds"):
        found[name] = [
            window.mean(name) if step > 1 else rows[end].get(name)
            for window, end in zip(windows, ends, strict=True)
        ]
    found["tokens_per_second"] = [window.per_second("generated") for window in windows]
    lanes = max(1, generators)
    waits = ("wait", "generator_wait") if generators else ("train", "generate")
    found["trainer_share"] = [window.share(waits[0]) for window in windows]
    found["generator_share"] = [window.share(waits[1], lanes) for window in windows]
    return found
