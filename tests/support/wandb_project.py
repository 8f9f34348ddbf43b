"""As much of a Weights & Biases server as reading the runs of a project needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USER = {"id": "u", "name": "Me", "username": "me", "entity": "me", "flags": "{}"}


@dataclass
class Project:
    """runs: their nodes with `history`, the rows. asked: names and values of every query. busy:
    how many further queries for a page of runs are refused, with which status."""

    name: str
    runs: list[dict[str, Any]]
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    busy: int = 0
    status: int = 429
    refused: int = 0
    url: str = ""

    def count(self, query: str) -> int:
        return sum(name == query for name, _ in self.asked)

    def answer(self, query: str, values: Mapping[str, Any]) -> dict[str, Any]:
        if query == "Runs":
            return {"project": self.page(values) if values["project"] == self.name else None}
        if query in ("RunHistoryKeys", "RunParquetHistory", "HistoryPage"):
            return {"project": {"run": self.history(query, values)}}
        return {"viewer": {**USER, "teams": {"edges": []}}, "serverInfo": {"features": []}}

    def page(self, values: Mapping[str, Any]) -> dict[str, Any]:
        start, size = int(values.get("cursor") or 0), int(values["perPage"])
        shown = self.runs[start : start + size]
        edges = [
            {"cursor": str(start + place), "node": node(run)}
            for place, run in enumerate(shown, start=1)
        ]
        more = start + size < len(self.runs)
        return {
            "internalId": "1",
            "runCount": len(self.runs),
            "readOnly": False,
            "runs": {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": more}},
        }

    def history(self, query: str, values: Mapping[str, Any]) -> dict[str, Any]:
        wanted = values.get("run") or values.get("runName") or values.get("name")
        (run,) = (run for run in self.runs if run["name"] == wanted)
        rows = run["history"]
        if query == "RunHistoryKeys":
            return {"historyKeys": {"lastStep": rows[-1]["_step"]} if rows else None}
        if query == "RunParquetHistory":
            return {"parquetHistory": {"parquetUrls": [], "liveData": []}}
        least, most = values["minStep"], values["maxStep"]
        held = [row for row in rows if least <= row["_step"] < most]
        return {"history": [json.dumps(row) for row in held[: values["pageSize"]]]}


def node(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run as the server tells it: its config's values each in a `value`."""
    config = {key: {"desc": None, "value": value} for key, value in run["config"].items()}
    whole = {"id": run["name"], "projectId": 1, "tags": [], "sweepName": None, "group": None}
    whole |= {"jobType": "train", "commit": "0123456789", "readOnly": False, "user": USER}
    whole |= {"createdAt": "2026-01-01T00:00:00", "systemMetrics": "{}", "summaryMetrics": "{}"}
    told = {key: value for key, value in run.items() if key != "history"}
    return whole | told | {"config": json.dumps(config), "historyLineCount": len(run["history"])}


@contextmanager
def serving(name: str, runs: Sequence[dict[str, Any]]) -> Iterator[Project]:
    """A project on a free port of this machine."""
    state = Project(name, list(runs))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = json.loads(body) if self.path == "/graphql" else {}
            query = asked.get("query", "").partition("query ")[2].partition("(")[0].split("{")[0]
            values = asked.get("variables") or {}
            if query.strip() == "Runs" and state.busy:
                state.busy -= 1
                state.refused += 1
                self.send_response(state.status)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            state.asked.append((query.strip(), values))
            text = json.dumps({"data": state.answer(query.strip(), values)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

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
