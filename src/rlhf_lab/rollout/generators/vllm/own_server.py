"""A vLLM server on this machine: one that lives as long as the run, or one of no run."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.rollout.generators.options import Command
from rlhf_lab.rollout.generators.vllm.http import (
    KEY_BYTES,
    SERVER_KEY,
    Server,
    job_id,
    served_model,
    server_key,
)
from rlhf_lab.rollout.generators.vllm.make import model_folder, visible_gpus
from rlhf_lab.rollout.generators.vllm.options import (
    IPC_VARIABLES,
    LOOPBACK,
    OWN_READS_FILES,
    PORT_REMEDY,
    Sync,
    VLLMSampling,
)
from rlhf_lab.rollout.generators.vllm.process import (
    STARTUP_REMEDY,
    VLLMProcess,
    environment,
)
from rlhf_lab.rollout.generators.vllm.serve import ALONE
from rlhf_lab.rollout.generators.vllm.servers import PROCESSOR, Servers
from rlhf_lab.rollout.generators.vllm.weights import shape_of
from rlhf_lab.rollout.ports import free_port, require_free
from rlhf_lab.types.errors import UserError

SERVE = "rlhf_lab.rollout.generators.vllm.serve"
DOOR = "rlhf_lab.rollout.generators.vllm.bearer.RequireKey"
DEV_MODE = {"VLLM_SERVER_DEV_MODE": "1"}


def own_server(
    options: VLLMSampling, model: Any, settings: dict[str, Any], cache: Path | None = None
) -> Servers:
    """Start a server with dummy weights on this machine, which ends with the run, and wait until it
    is ready. Its key is new, and in its environment alone."""
    if options.sync is Sync.nccl:
        raise UserError(f"generator.sync=nccl without generator.urls: {OWN_READS_FILES}")
    if options.host not in LOOPBACK:
        raise UserError(
            f"generator.host={options.host}: the server that a run starts listens to this machine "
            "alone; leave it out, or start one with `rlhf-lab serve` and pass generator.urls"
        )
    port = options.port or free_port(options.host)
    require_free("generator.port", port, options.host, PORT_REMEDY)
    url = f"http://{options.host}:{port}"
    folder = model_folder(model, cache)
    key = secrets.token_hex(KEY_BYTES)
    arguments = server_arguments(folder, settings, options.host, port, options.backend, key)
    variables = server_environment(options) | visible_gpus(options) | {SERVER_KEY: key}
    process = VLLMProcess(SERVE, arguments, variables)
    doing = f"while a server started at {url}"
    try:
        with contextlib.closing(Server(url)) as server:
            process.wait_for(server.is_healthy, doing, options.startup_seconds, STARTUP_REMEDY)
        named = replace(options, urls=[url], port=0)
        tokens = int(settings["max_model_len"])
        return Servers(named, shape_of(model.config), tokens, key, process)
    except BaseException:
        process.close()
        raise


def server_environment(options: VLLMSampling) -> dict[str, str]:
    """Environment variables of a server."""
    variables = IPC_VARIABLES if options.sync is Sync.ipc else {}
    return environment(options, torch.cuda.is_available()) | DEV_MODE | variables


def server_arguments(
    folder: Path, settings: dict[str, Any], host: str, port: int, backend: str, key: str
) -> list[str]:
    """Arguments of a server for a run. folder: of the policy's config. key: "" for a server that
    requires none; otherwise it is in the environment."""
    return [
        *flags({"model": str(folder), **settings}),
        *("--host", host, "--port", str(port)),
        *("--weight-transfer-config", json.dumps({"backend": backend})),
        *("--logits-processors", PROCESSOR),
        *(("--served-model-name", served_model()) if job_id() else ()),
        *(("--middleware", DOOR) if key else ()),
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
    options: VLLMSampling, model: Any, settings: dict[str, Any], cache: Path | None = None
) -> Command:
    """The command of a server that no run owns, for several runs one after another. Raises
    UserError where other machines reach it and no key is set."""
    key = server_key()
    if not key and options.host not in LOOPBACK:
        raise UserError(
            f"generator.host={options.host} without a key: all that reach the port could load "
            f"weights; set {SERVER_KEY} to a secret (openssl rand -hex 32), the same for this "
            "server and its runs"
        )
    require_free("generator.port", options.port, options.host, "pass another one")
    folder = model_folder(model, cache)
    place = options.host, options.port, options.backend
    arguments = server_arguments(folder, settings, *place, key)
    words = [sys.executable, "-P", "-m", SERVE, ALONE, *arguments]
    return Command(words, server_environment(options))
