"""Engines and servers in the place of vLLM's, as far as the run's side of them is tested."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.vllm.requests import Answer, Drawing, Request
from rlhf_lab.types.data import Weights
from rlhf_lab.types.heartbeat import nothing


def has_end(tokens: Sequence[int], drawing: Drawing) -> bool:
    """Whether an end token is among the tokens."""
    return not set(drawing.ends).isdisjoint(tokens)


class Mirror:
    """A backend that is transformers itself. lost: the tensor that never arrives. keeps: whether
    only the first load does anything. says: the version it speaks of, if not the last."""

    num_engines = 1

    def __init__(self, model: Any, lost: str = "", keeps: bool = False) -> None:
        self.model = model
        self.lost = lost
        self.keeps = keeps
        self.says = ""
        self.loaded: list[str] = []
        self.asked: list[list[Request]] = []
        self.is_closed = False
        self.begun: list[list[Answer]] = []

    def load(self, weights: Weights, name: str) -> None:
        own = dict(self.model.named_parameters())
        state = {
            k: own[k].detach().clone() if k == self.lost else v for k, v in weights.state.items()
        }
        if not (self.keeps and self.loaded):
            load_weights(self.model, Weights(weights.version, state))
        self.loaded.append(name)

    def draw(self, requests: Sequence[Request], drawing: Drawing) -> list[Answer]:
        self.asked.append(list(requests))
        return [self.answer(request, drawing) for request in requests]

    def answer(self, request: Request, drawing: Drawing) -> Answer:
        rng = torch.Generator().manual_seed(request.seed)
        tokens: list[int] = []
        logps: list[float] = []
        while len(tokens) < drawing.max_new_tokens and not has_end(tokens, drawing):
            row = torch.tensor([[*request.tokens, *tokens]])
            with torch.inference_mode():
                logits_V = self.model(input_ids=row).logits[0, -1].float() / drawing.temperature
            logp_V = logits_V.log_softmax(-1)
            drawn = (
                logp_V.argmax() if request.is_greedy else logp_V.exp().multinomial(1, generator=rng)
            )
            tokens.append(int(drawn))
            logps.append(float(logp_V[tokens[-1]]))
        version = self.says or self.loaded[-1]
        names = (version,) * len(tokens)
        return Answer(tuple(tokens), tuple(logps), has_end(tokens, drawing), names)

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int:
        self.begun.append(self.draw(requests, drawing))
        return len(self.begun) - 1

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        """The newest batch alone: answers come in another order than they were asked for."""
        look()
        return {max(numbers): self.begun[max(numbers)]}

    def finish(self, number: int, look: Callable[[], None] = nothing) -> list[Answer]:
        return self.begun[number]

    def close(self) -> None:
        self.is_closed = True


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
        self.device = "cuda"

    def reply(self, path: str, content: Any) -> Any:
        self.calls.append(path)
        if path == self.refused:
            raise ValueError("the worker is gone")
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
        token = {"token_id": self.number, "logprob": -0.5}
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
def serving(fake: FakeServer) -> Iterator[str]:
    """The base URL of a fake server."""

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
            try:
                body, status = json.dumps(fake.reply(self.path, content)).encode(), 200
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
