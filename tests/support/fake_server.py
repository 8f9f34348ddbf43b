"""A server in the place of vLLM's, as far as the run's side of it is tested. Without torch."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeServer:
    """What a run asks of a vLLM server, without a model: samples say which server wrote them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.version = "default"
        self.calls: list[str] = []
        self.model_config: dict[str, Any] = {
            "logits_processors": ["rlhf_lab.rollout.generators.vllm.plugin:GreedyTemperature"],
            "logprobs_mode": "processed_logprobs",
            "max_model_len": 64,
            "served_model_name": "tiny",
        }
        self.copies = 1
        self.headers: list[str | None] = []
        self.connections = 0
        self.protocol = "HTTP/1.0"
        self.prompts: list[list[int]] = []
        self.refused = ""
        self.takes_tokens = True
        self.key = ""
        self.logp = -0.5
        self.device = "cuda"

    def reply(self, path: str, content: Any) -> Any:
        self.calls.append(path)
        if path == self.refused:
            raise ValueError("the worker is gone")
        if path == "/health":
            return {}
        if path.startswith("/server_info"):
            return {
                "vllm_config": {
                    "model_config": self.model_config,
                    "weight_transfer_config": {"backend": "rlhf_lab_file"},
                    "device_config": {"device": self.device},
                    "scheduler_config": {"enable_chunked_prefill": self.device == "cpu"},
                    "parallel_config": {
                        "tensor_parallel_size": 1,
                        "pipeline_parallel_size": 1,
                        "data_parallel_size": self.copies,
                    },
                }
            }
        if path == "/update_weights":
            assert os.path.getsize(content["update_info"]["path"]) > 0
        if path == "/finish_weight_update":
            self.version = content["weight_version"]
        if path == "/weight_info":
            return {"weight_version": self.version}
        if path == "/inference/v1/generate":
            return self.written(content)
        return {}

    def written(self, content: Any) -> Any:
        """A sample of one token."""
        if not self.takes_tokens:
            raise PermissionError("scale-out is disabled")
        if "token_ids" not in content:
            raise ValueError("a request without tokens")
        self.prompts.append(content["token_ids"])
        token = {"token_id": self.number, "logprob": self.logp}
        spans = [{"version": self.version, "start": 0, "end": 1}]
        return {
            "choices": [
                {
                    "token_ids": [self.number],
                    "logprobs": {"content": [token]},
                    "finish_reason": "length",
                    "weight_versions": spans,
                }
            ]
        }


@contextmanager
def serving(fake: FakeServer, port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
    """The base URL of a fake server, at a free port without another one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = fake.protocol

        def setup(self) -> None:
            fake.connections += 1
            super().setup()

        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, content: Any) -> None:
            fake.headers.append(self.headers["X-data-parallel-rank"])
            is_known = self.headers["Authorization"] == f"Bearer {fake.key}"
            try:
                if fake.key and self.path != "/health" and not is_known:
                    raise LookupError("a key is missing")
                body, status = json.dumps(fake.reply(self.path, content)).encode(), 200
            except LookupError as error:
                body, status = str(error).encode(), 401
            except PermissionError as error:
                body, status = str(error).encode(), 403
            except ValueError as error:
                body, status = str(error).encode(), 500
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests need no log."""

    server = ThreadingHTTPServer((host, port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
