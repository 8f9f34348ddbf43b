"""As much of a Weights & Biases server as `wandb sync` needs, which keeps what it is sent."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"
VIEWER = {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
PROJECT = {"id": "p", "name": "rlhf_lab", "entity": {"id": "e", "name": "me"}}


class WandbServer:
    """history: rows of each run, by its id. upserts: what was told of the runs, in order."""

    def __init__(self) -> None:
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.upserts: list[dict[str, Any]] = []
        self.url = ""

    def streamed(self, run: str, files: dict[str, Any]) -> None:
        """Rows at an offset take the place of those from there on, as at the real server."""
        if part := files.get(HISTORY):
            rows = self.history.setdefault(run, [])
            rows[part["offset"] :] = [json.loads(line) for line in part["content"]]

    def answer(self, query: str, values: dict[str, Any]) -> dict[str, Any]:
        if "upsertBucket" in query:
            self.upserts.append(values)
            bucket = {"id": values["name"], **self.bucket(values["name"]), "project": PROJECT}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "RunResumeStatus" in query:
            held = values["name"] in self.history
            return {"model": {**PROJECT, "bucket": self.bucket(values["name"]) if held else None}}
        if "createRunFiles" in query:
            files = [{"name": name, "uploadUrl": f"{self.url}/put"} for name in values["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        return {"viewer": VIEWER, "serverInfo": {"features": []}}

    def bucket(self, run: str) -> dict[str, Any]:
        rows = self.history.get(run, [])
        tail = [json.dumps(row) for row in rows[-1:]]
        return {
            "id": run,
            "name": run,
            "displayName": run,
            "config": "{}",
            "summaryMetrics": tail[0] if tail else "{}",
            "historyLineCount": len(rows),
            "historyTail": json.dumps(tail),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": [],
            "notes": "",
            "wandbConfig": "{}",
            "sweepName": None,
        }


@contextmanager
def serving() -> Iterator[WandbServer]:
    """A server on a free port of this machine."""
    state = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            reply: dict[str, Any] = {}
            if self.path.endswith("/file_stream"):
                state.streamed(self.path.split("/")[-2], json.loads(body).get("files", {}))
            elif self.path == "/graphql":
                asked = json.loads(body)
                values = asked.get("variables") or {}
                reply = {"data": state.answer(asked["query"], values)}
            text = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
