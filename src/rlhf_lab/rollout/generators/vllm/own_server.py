"""A vLLM server on this machine that lives as long as the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.rollout.generators.options import Command
from rlhf_lab.rollout.generators.vllm.http import Server, job_id, served_model
from rlhf_lab.rollout.generators.vllm.make import model_folder
from rlhf_lab.rollout.generators.vllm.options import (
    IPC_VARIABLES,
    OWN_READS_FILES,
    PORT_REMEDY,
    Sync,
    VLLMServerSampling,
)
from rlhf_lab.rollout.generators.vllm.process import (
    STARTUP_REMEDY,
    VLLMProcess,
    environment,
)
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Backend,
    Drawing,
    EngineFailure,
    Request,
)
from rlhf_lab.rollout.generators.vllm.serve import ALONE
from rlhf_lab.rollout.generators.vllm.servers import PROCESSOR, Servers
from rlhf_lab.rollout.generators.vllm.weights import shape_of
from rlhf_lab.rollout.ports import free_port, require_free
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import nothing

SERVE = "rlhf_lab.rollout.generators.vllm.serve"
DEV_MODE = {"VLLM_SERVER_DEV_MODE": "1"}


class OwnServer(Backend):
    """A server and its process, whose log is part of every error."""

    def __init__(self, child: VLLMProcess, servers: Servers) -> None:
        self._child = child
        self._servers = servers

    @property
    def num_engines(self) -> int:
        """Copies of the model."""
        return self._servers.num_engines

    @property
    def pid(self) -> int:
        return self._child.pid

    def load(self, weights: Weights, name: str) -> None:
        try:
            self._servers.load(weights, name)
        except EngineFailure as error:
            complaint = f"failed ({error})"
            raise self._child.failure(f"while it loaded version {name}", complaint) from error

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int:
        return self._servers.begin(requests, drawing)

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        try:
            return self._servers.finish_some(numbers, look)
        except EngineFailure as error:
            raise self._child.failure("at samples", f"failed ({error})") from error

    def close(self) -> None:
        self._child.close()
        self._servers.close()


def own_server(
    options: VLLMServerSampling, model: Any, settings: dict[str, Any], cache: Path | None = None
) -> OwnServer:
    """Start a server with dummy weights on this machine, and wait until it is ready."""
    if options.sync is Sync.nccl:
        raise UserError(f"generator.sync=nccl without generator.urls: {OWN_READS_FILES}")
    port = options.port or free_port(options.host)
    require_free("generator.port", port, options.host, PORT_REMEDY)
    url = f"http://{options.host}:{port}"
    folder = model_folder(model, cache)
    arguments = server_arguments(folder, settings, options.host, port, options.backend)
    child = VLLMProcess(SERVE, arguments, server_environment(options))
    doing = f"while a server started at {url}"
    try:
        child.wait_for(Server(url).is_healthy, doing, options.startup_seconds, STARTUP_REMEDY)
        named = replace(options, urls=[url], port=0)
        servers = Servers(named, shape_of(model.config), int(settings["max_model_len"]))
    except BaseException:
        child.close()
        raise
    return OwnServer(child, servers)


def server_environment(options: VLLMServerSampling) -> dict[str, str]:
    """Environment variables of a server."""
    variables = IPC_VARIABLES if options.sync is Sync.ipc else {}
    return environment(options, torch.cuda.is_available()) | DEV_MODE | variables


def server_arguments(
    folder: Path, settings: dict[str, Any], host: str, port: int, backend: str
) -> list[str]:
    """Arguments of a server for a run. folder: of the policy's config."""
    return [
        *flags({"model": str(folder), **settings}),
        *("--host", host, "--port", str(port)),
        *("--weight-transfer-config", json.dumps({"backend": backend})),
        *("--logits-processors", PROCESSOR),
        *(("--served-model-name", served_model()) if job_id() else ()),
        *("--enable-scale-out", "--disable-log-stats", "--disable-uvicorn-access-log"),
    ]


def flags(settings: dict[str, Any]) -> list[str]:
    """An engine's settings as flags of the server's command line."""
    words = []
    for key, value in settings.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            words += [flag, str(value)]
    return words


def lone_server(
    options: VLLMServerSampling, model: Any, settings: dict[str, Any], cache: Path | None = None
) -> Command:
    """The command of a server that no run owns, for several runs one after another."""
    require_free("generator.port", options.port, options.host, "pass another one")
    folder = model_folder(model, cache)
    arguments = server_arguments(folder, settings, options.host, options.port, options.backend)
    words = [sys.executable, "-P", "-m", SERVE, ALONE, *arguments]
    return Command(words, server_environment(options))
