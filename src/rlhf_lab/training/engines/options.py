"""Config group `engine`: who holds the weights, and how much memory training may take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from rlhf_lab.models.devices import check_name
from rlhf_lab.tasks.optional_packages import require_package
from rlhf_lab.types import limits
from rlhf_lab.types.precision import Precision

if TYPE_CHECKING:
    import torch

    from rlhf_lab.training.engines.distributed import Processes
    from rlhf_lab.training.engines.parameter_backend import ParameterBackend, ReferenceUse
    from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
    from rlhf_lab.training.optim import Optim

AUTO_TOKENS = -1
# Padded tokens of a pass on a GPU: enough to fill it, whatever the lengths of the rows.
TOKENS_ON_GPU = 16384
GPU = "cuda"


class Versions(StrEnum):
    """Where copies of the policy are kept for generators, the gap probe and checkpoints."""

    host = "host"
    device = "device"


class EngineContext(NamedTuple):
    """What a backend is built from, in each process of the engine.

    networks: what is trained, with weights in rank 0 alone; the backend owns them. use: what the
    run does with the reference. teacher: frozen networks that are the reference instead, for an
    engine of one process. drawn_in: the type of the generators' weights.
    """

    networks: PolicyWithValues
    optim: Optim
    device: torch.device
    processes: Processes
    use: ReferenceUse
    teacher: PolicyWithValues | None
    drawn_in: torch.dtype


@dataclass(frozen=True)
class EngineOptions(limits.OptionGroup, ABC, key="engine"):
    """Options of all engines, each value per process.

    shares_work: whether several processes, started by torchrun, train together; else one process
    has all parameters and gradients whole. measures_cosine: whether `step` measures
    optim.gradient_cosine.
    """

    name: str = field(metadata=limits.NAME)
    threads: int = limits.threads(1, about="CPU threads of each operation of the trainer.")
    micro_rows: int = limits.rows(
        32,
        about=(
            "Rows of one forward and backward pass; changes memory, and gradients by rounding "
            "alone."
        ),
    )
    micro_tokens: int = limits.count(
        AUTO_TOKENS,
        also={0: "for no such limit", AUTO_TOKENS: f"for {TOKENS_ON_GPU} on a GPU alone"},
        about=(
            "Padded tokens of one pass at most, with groups of like length together; 0 is no such "
            f"limit, and -1 is {TOKENS_ON_GPU} on a GPU and no limit on a CPU."
        ),
    )
    logit_tokens: int = limits.count(
        1024,
        also={0: "for all"},
        about="Response tokens whose logits are in memory at a time; 0 is all of them.",
    )
    gradient_checkpointing: bool = limits.option(
        False, about="Whether activations are computed again in the backward pass, to save memory."
    )
    share_prompts: bool = limits.option(
        True,
        about=(
            "Whether a prompt is read once for all of its responses, where the model's attention "
            "can and where that costs less."
        ),
    )
    device: str = limits.option(
        "auto",
        about=(
            "Where it trains: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one, each "
            "process its own."
        ),
    )
    dtype: Precision = limits.option(
        Precision.auto,
        about=(
            "Type of forward and backward passes; master weights and sums of gradients are "
            "float32. auto is bfloat16 on a GPU and float32 on a CPU."
        ),
    )
    tf32: bool = limits.option(
        False,
        about=(
            "Whether a GPU multiplies float32 matrices of the trainer's passes with 10 bits of "
            "mantissa (TensorFloat-32)."
        ),
    )
    versions: Versions = limits.option(
        Versions.host,
        about=(
            "Where versions of the policy are kept for generators and the gap probe: host, or "
            "device, which spares the way over the host and keeps mode.max_staleness + 2 there."
        ),
    )
    shares_work: ClassVar[bool] = True
    measures_cosine: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.device, "engine.device")

    @abstractmethod
    def build(self, context: EngineContext) -> ParameterBackend:
        """The backend of this process. `self` has no value `auto` here (see `on`)."""

    def on(self, device_type: str) -> Self:
        """The same with the values that auto takes on a device of this type, cuda or cpu."""
        is_gpu = device_type == GPU
        tokens = self.micro_tokens
        if tokens == AUTO_TOKENS:
            tokens = TOKENS_ON_GPU if is_gpu else 0
        return replace(self, dtype=self.dtype.on(device_type), micro_tokens=tokens)


@dataclass(frozen=True)
class SingleEngineOptions(EngineOptions):
    """One process holds everything."""

    name: str = limits.name("single")
    shares_work: ClassVar[bool] = False

    def build(self, context: EngineContext) -> ParameterBackend:
        from rlhf_lab.training.engines.single import SingleBackend  # torch

        return SingleBackend.of(self, context)


@dataclass(frozen=True)
class FSDPOptions(EngineOptions):
    """Every process, started by torchrun, holds a part of every tensor (PyTorch's FSDP2, after
    arXiv:2304.11277)."""

    name: str = limits.name("fsdp")

    def build(self, context: EngineContext) -> ParameterBackend:
        from rlhf_lab.training.engines.fsdp import FSDPBackend

        networks, optim, device, processes, use, *_ = context
        return FSDPBackend(networks, optim, self, device, processes, use)


@dataclass(frozen=True)
class DeepSpeedOptions(EngineOptions):
    """DeepSpeed ZeRO (arXiv:1910.02054) over processes started by torchrun; the gradients of policy
    and value model are clipped jointly."""

    name: str = limits.name("deepspeed")
    stage: int = limits.count(
        2,
        min=2,
        max=3,
        why="ZeRO stages",
        about=(
            "What each process holds only a part of: 2 the optimizer's state and gradients, 3 "
            "weights too."
        ),
        source="arXiv:1910.02054",
    )

    measures_cosine: ClassVar[bool] = False

    def build(self, context: EngineContext) -> ParameterBackend:
        from rlhf_lab.training.engines.deepspeed import DeepSpeedBackend

        networks, optim, device, processes, use, *_ = context
        return DeepSpeedBackend(networks, optim, self, device, processes, use)

    def require_usable(self, key: str) -> None:
        """Refuse to start without the package."""
        require_package("deepspeed", "deepspeed", f"{key}=deepspeed", "pass engine=fsdp")
