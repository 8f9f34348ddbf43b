"""Refuse vLLM servers that are not as a run needs them, before the first sample."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from rlhf_lab.rollout.generators.vllm import names
from rlhf_lab.rollout.generators.vllm.http import Server
from rlhf_lab.rollout.generators.vllm.requests import (
    EngineFailure,
)
from rlhf_lab.rollout.generators.vllm.server_options import VLLMServerSampling
from rlhf_lab.types.errors import UserError

PROCESSOR = "rlhf_lab.rollout.generators.vllm.plugin:GreedyTemperature"


def workers_of(server: Server, tokens: int, options: VLLMServerSampling) -> tuple[int, int]:
    """The workers of one copy of the model in a server, and the number of copies. Refuses a server
    of another job, and one that was started with other flags than a run needs, and names them.
    tokens: of a prompt with its response, at most."""
    if not server.is_healthy():
        raise UserError(
            f"generator.urls={server.url}: no vLLM server answers there; start it as "
            "docs/generation.md says, or leave generator.urls out"
        )
    try:
        config = server.get("/server_info?config_format=json")["vllm_config"]
    except EngineFailure as error:
        raise UserError(
            f"generator.urls={server.url}: the server does not let others load weights ({error}); "
            "start it with VLLM_SERVER_DEV_MODE=1, in a network that you trust"
        ) from error
    model = config["model_config"]
    require_same_job(server, model)
    backend = options.backend
    transfer = config.get("weight_transfer_config") or {}
    requirements = {
        f"--logits-processors {PROCESSOR}": PROCESSOR in (model["logits_processors"] or ()),
        "--logprobs-mode processed_logprobs": model["logprobs_mode"] == "processed_logprobs",
        f'--weight-transfer-config \'{{"backend": "{backend}"}}\'': transfer.get("backend")
        == backend,
        "--no-enable-chunked-prefill": config["device_config"]["device"] != "cpu"
        or not config["scheduler_config"]["enable_chunked_prefill"],
        f"--max-model-len {tokens} (or more)": model["max_model_len"] >= tokens,
        "--enable-scale-out": takes_tokens(server),
    }
    missing = [flag for flag, is_there in requirements.items() if not is_there]
    if missing:
        raise UserError(f"generator.urls={server.url}: start the server with {' '.join(missing)}")
    parallel = config["parallel_config"]
    workers = int(parallel["tensor_parallel_size"]) * int(parallel["pipeline_parallel_size"])
    return workers, int(parallel["data_parallel_size"])


def takes_tokens(server: Server) -> bool:
    """Whether prompts can be sent as tokens: else the server forbids even an empty request."""
    try:
        server.post(names.GENERATE, {})
    except EngineFailure as error:
        return error.status != HTTPStatus.FORBIDDEN
    return True


def require_same_job(server: Server, model: dict[str, Any]) -> None:
    """Refuse a server that another job has started. model: the server's config of it."""
    served = model["served_model_name"]
    known = served if isinstance(served, list) else [served]
    if names.run_id() and names.served_model() not in known:
        raise UserError(
            f"generator.urls={server.url}: the server there serves {served}, and belongs to "
            f"another job than {names.RUN_ID}={names.run_id()}: choose another port, or start the "
            "server with that variable"
        )
