"""vLLM over HTTP: several servers that share every chunk."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from rlhf_lab.rollout.generators.vllm.http import (
    GENERATE,
    RUN_ID,
    SERVER_KEY,
    Server,
    at_once,
    job_id,
    name_at_server,
    name_in_run,
    served_model,
    started,
)
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.generators.vllm.process import END_SECONDS, VLLMProcess
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Backend,
    Drawing,
    EngineFailure,
    Request,
    per_token,
    sampling_params,
)
from rlhf_lab.rollout.generators.vllm.transfer import DeviceTransfer, FileTransfer, Transfer
from rlhf_lab.rollout.generators.vllm.weights import FILE_BACKEND
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import beat, nothing

PROCESSOR = "rlhf_lab.rollout.generators.vllm.plugin:GreedyTemperature"


@dataclass
class Place:
    """A server with room for samples. workers: of each of its copies of the model. rows: that a
    copy decodes at once. busy: requests that it has, or that wait for it."""

    server: Server
    workers: int
    copies: int
    rows: int
    busy: int = 0
    room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        # More would wait at the server, with a connection each.
        self.room = asyncio.Semaphore(self.rows * self.copies)

    @property
    def load(self) -> float:
        return self.busy / self.copies


def place_at(server: Server, tokens: int, options: VLLMSampling) -> Place:
    """What a server is. Refuses one of another job, and one that was started with other flags than
    a run needs, and names them. tokens: of a prompt with its response, at most."""
    if not server.is_healthy():
        raise UserError(
            f"generator.urls={server.url}: no vLLM server answers there; start it as "
            "docs/generation.md shows, or leave generator.urls out"
        )
    try:
        config = server.get("/server_info?config_format=json")["vllm_config"]
    except EngineFailure as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise UserError(
                f"generator.urls={server.url}: the server requires a key; set {SERVER_KEY} to the "
                "value that the server was started with"
            ) from error
        raise UserError(
            f"generator.urls={server.url}: the server does not let others load weights ({error}); "
            "start it with VLLM_SERVER_DEV_MODE=1, and with a key (docs/generation.md)"
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
    rows = int(config["scheduler_config"]["max_num_seqs"])
    return Place(
        server,
        workers=int(parallel["tensor_parallel_size"]) * int(parallel["pipeline_parallel_size"]),
        copies=int(parallel["data_parallel_size"]),
        rows=min(rows, options.max_num_seqs or rows),
    )


def takes_tokens(server: Server) -> bool:
    """Whether prompts can be sent as tokens: else the server forbids even an empty request."""
    try:
        server.post(GENERATE, {})
    except EngineFailure as error:
        return error.status != HTTPStatus.FORBIDDEN
    return True


def require_same_job(server: Server, model: dict[str, Any]) -> None:
    """Refuse a server that another job has started. model: the server's config of it."""
    served = model["served_model_name"]
    known = served if isinstance(served, list) else [served]
    if job_id() and served_model() not in known:
        raise UserError(
            f"generator.urls={server.url}: the server there serves {served}, and belongs to "
            f"another job than {RUN_ID}={job_id()}: choose another port, or start the "
            "server with that variable"
        )


# What vLLM's server makes of a log-prob that is no number; a token this unlikely is never drawn.
NOT_A_NUMBER = -9999.0
# Which of the copies within a server draws a sample.
COPY = "X-data-parallel-rank"
LIFE_SECONDS = 2.0
# How often new weights are looked for while samples are drawn.
LOOK_SECONDS = 0.1


class Servers(Backend):
    """Servers of one weight version. A prompt goes to the server with the fewest samples for each
    copy of the model, which then draws all samples and turns of this prompt at this version."""

    def __init__(
        self,
        options: VLLMSampling,
        shape: dict[str, Any],
        tokens: int,
        key: str = "",
        process: VLLMProcess | None = None,
    ) -> None:
        """shape: of the policy's config. tokens: of a prompt with its response, at most. key: their
        bearer. process: of the only server, which then ends with this object, and whose log is part
        of every error."""
        self._servers = [Server(url, key) for url in options.urls]
        self._process = process
        try:
            self._begin(options, shape, tokens)
        except BaseException:
            for server in self._servers:
                server.close()
            raise

    def _begin(self, options: VLLMSampling, shape: dict[str, Any], tokens: int) -> None:
        """Refuse servers that are not as the run needs them, and prepare the others."""
        self._places = [place_at(server, tokens, options) for server in self._servers]
        # Copies of the model, neighbours at different servers.
        most = max(place.copies for place in self._places)
        self._copies = [(p, n) for n in range(most) for p in self._places if n < p.copies]
        self._homes: dict[int, Place] = {}
        self._transfer: Transfer
        if options.backend == FILE_BACKEND:
            self._transfer = FileTransfer(self._servers, options.weights_folder, shape)
        else:
            ranks = [place.workers * place.copies for place in self._places]
            self._transfer = DeviceTransfer(self._servers, ranks, options)
        self._numbers = itertools.count()
        self._drawn: dict[int, Future[list[Answer]]] = {}
        self._num_answers = 0
        self._version = ""
        self._all("/resume")  # a run that was killed during a load left them paused

    @property
    def num_engines(self) -> int:
        """Copies of the model, over all servers."""
        return len(self._copies)

    @property
    def process(self) -> VLLMProcess:
        """That of a server that the run has started."""
        assert self._process is not None
        return self._process

    @contextlib.contextmanager
    def _logged(self, doing: str) -> Iterator[None]:
        """Failures inside have the log of the run's own server."""
        try:
            yield
        except EngineFailure as error:
            if self._process is None:
                raise
            # One that refused a request lives; another is perhaps just ending.
            seconds = 0.0 if error.status else END_SECONDS
            raise self._process.failure(doing, f"failed ({error})", seconds) from error

    def load(self, weights: Weights, name: str) -> None:
        """Load a version into all servers. Raises EngineFailure if one then has another."""
        with self._logged(f"while it loaded version {name}"):
            self._load(weights, name)
        beat()

    def _load(self, weights: Weights, name: str) -> None:
        self._version = name_at_server(name)
        self._homes = {}  # a server's keys and values are found again at the same version only
        is_idle = not self._drawn
        with contextlib.nullcontext() if is_idle else self._paused():
            self._transfer.send(weights, self._version)
            for server in self._servers:
                if is_idle:
                    server.post("/reset_prefix_cache")
                has = server.get("/weight_info")["weight_version"]
                if has != self._version:
                    raise EngineFailure(
                        f"{server.url} has version {has} after a load of {self._version}"
                    )

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Inside, samples that are being drawn wait where they are."""
        self._all("/pause?mode=keep&clear_cache=false")
        try:
            yield
        finally:
            self._all("/resume")

    def _all(self, path: str) -> None:
        at_once(server.ask("POST", path) for server in self._servers)

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int:
        number = next(self._numbers)
        salt = name_in_run(self._version)  # vLLM takes no slash in it
        self._drawn[number] = started(self._draw_all(requests, drawing, salt))
        return number

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        try:
            self._watch([self._drawn[number] for number in numbers], look)
            with self._logged("at samples"):
                ready = [number for number in numbers if self._drawn[number].done()]
                found = {number: self._drawn[number].result() for number in ready}
        except BaseException:
            for number in numbers:
                self._drawn.pop(number).cancel()
            raise
        for number in ready:
            del self._drawn[number]
        return found

    def _watch(self, batches: Sequence[Future[list[Answer]]], look: Callable[[], None]) -> None:
        """Wait for the first of several batches. As long as the servers are healthy, the generator
        counts as alive."""
        seconds = LIFE_SECONDS if look is nothing else LOOK_SECONDS
        before = self._num_answers
        while not wait(batches, seconds, FIRST_COMPLETED).done:
            now = self._num_answers
            if now > before or all(at_once(server.health() for server in self._servers)):
                beat()
                look()
            before = now

    async def _draw_all(
        self, requests: Sequence[Request], drawing: Drawing, salt: str
    ) -> list[Answer]:
        return await asyncio.gather(*(self._draw_one(one, drawing, salt) for one in requests))

    async def _draw_one(self, request: Request, drawing: Drawing, salt: str) -> Answer:
        headers = {}
        if request.copy is None:
            emptiest = min(self._places, key=lambda place: place.load)
            place = self._homes.setdefault(request.prompt, emptiest)
        else:
            place, copy = self._copies[request.copy]
            headers = {COPY: str(copy)} if place.copies > 1 else {}
        body = {
            "token_ids": list(request.tokens),
            "sampling_params": sampling_params(request, drawing),
            # What an older version computed for the same tokens is not taken.
            "cache_salt": salt,
            # A server of another job refuses the name.
            **({"model": served_model()} if job_id() else {}),
        }
        place.busy += 1
        try:
            async with place.room:
                reply = await place.server.ask("POST", GENERATE, body, headers)
        finally:
            place.busy -= 1
        self._num_answers += 1
        choice = reply["choices"][0]
        logps = [row["logprob"] for row in choice["logprobs"]["content"]]
        spans = [(one["version"], one["start"], one["end"]) for one in choice["weight_versions"]]
        return Answer(
            tokens=tuple(choice["token_ids"]),
            logps=tuple(math.nan if logp <= NOT_A_NUMBER else logp for logp in logps),
            is_finished=choice["finish_reason"] == "stop",
            versions=tuple(map(name_in_run, per_token(spans))),
        )

    def close(self) -> None:
        for batch in self._drawn.values():
            batch.cancel()
        if self._process is not None:
            self._process.close()
        for server in self._servers:
            server.close()
        self._transfer.close()
