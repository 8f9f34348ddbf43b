"""A vLLM server on this machine that lives as long as the run."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from rlhf_lab.generators.vllm.http import Server
from rlhf_lab.generators.vllm.options import VLLMServerSampling
from rlhf_lab.generators.vllm.process import LATE, Child, environment
from rlhf_lab.generators.vllm.requests import Answer, Drawing, EngineFailure, Request
from rlhf_lab.generators.vllm.servers import PROCESSOR, Servers
from rlhf_lab.generators.vllm.weights import FILE_BACKEND, described, shape_of
from rlhf_lab.types import UserError, Weights

SERVE = "rlhf_lab.generators.vllm.serve"
DEV_MODE = {"VLLM_SERVER_DEV_MODE": "1"}


class OwnServer:
    """A server and the process that it is, whose log tells what became of it."""

    num_engines = 1

    def __init__(self, child: Child, servers: Servers) -> None:
        self._child = child
        self._servers = servers

    @property
    def pid(self) -> int:
        return self._child.pid

    def load(self, weights: Weights, name: str) -> None:
        try:
            self._servers.load(weights, name)
        except EngineFailure as error:
            complaint = f"failed ({error})"
            raise self._child.failure(f"while it loaded version {name}", complaint) from error

    def draw(self, requests: Sequence[Request], drawing: Drawing) -> list[Answer]:
        try:
            return self._servers.draw(requests, drawing)
        except EngineFailure as error:
            doing = f"at {len(requests)} samples"
            raise self._child.failure(doing, f"failed ({error})") from error

    def close(self) -> None:
        self._child.close()
        self._servers.close()


def own_server(options: VLLMServerSampling, model: Any, settings: dict[str, Any]) -> OwnServer:
    """Start a server with dummy weights on this machine, and wait until it is ready."""
    require_free(options.host, options.port)
    url = f"http://{options.host}:{options.port or free_port(options.host)}"
    folder = described(model)
    arguments = [*flags({"model": str(folder), **settings}), *addressed(url)]
    variables = environment(options, torch.cuda.is_available()) | DEV_MODE
    child = Child(folder, SERVE, arguments, variables)
    doing = f"while a server started at {url}"
    try:
        child.wait_for(Server(url).is_healthy, doing, options.startup_seconds, LATE)
        named = replace(options, urls=[url], port=0)
        servers = Servers(named, shape_of(model.config), int(settings["max_model_len"]))
    except BaseException:
        child.close()
        raise
    return OwnServer(child, servers)


def flags(settings: dict[str, Any]) -> list[str]:
    """An engine's settings as flags of the server's command line."""
    given = []
    for key, value in settings.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            given.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            given += [flag, str(value)]
    return given


def addressed(url: str) -> list[str]:
    """Where a server listens, and what it must be able to do for a run."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    return [
        *("--host", host, "--port", port),
        *("--weight-transfer-config", json.dumps({"backend": FILE_BACKEND})),
        *("--logits-processors", PROCESSOR),
        *("--enable-scale-out", "--disable-log-stats", "--disable-uvicorn-access-log"),
    ]


def free_port(host: str) -> int:
    """A port that nobody listens at now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at. port: 0 is whichever is free."""
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: connections of one that has just ended are no reason to wait.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f"generator.port={port} on generator.host={host} cannot be had ({error.strerror}): "
                "another program has it; pass generator.port=0 for a free one, or "
                f"generator.urls=[http://{host}:{port}] if it is a vLLM server"
            ) from error
